"""What serving costs: latency of encodings and signatures over both protocols, throughput, and latency under load."""
