"""What positions cost: DIET's Table 1 for every registered encoding, and attention that is linear in the length."""
