"""Write what Inductor compiled, and run it without Inductor."""
