"""What keeps the engine from being faster: matrix products, Python, and memory that lies idle."""
