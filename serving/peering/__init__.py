"""The forward pass of an exported BERT beside other libraries and runtimes, each in a process of its own."""
