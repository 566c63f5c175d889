"""Several processes that are one gateway: who starts them, and what each of them is."""
