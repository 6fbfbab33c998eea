"""Write what AOTAutograd makes of a graph, apart from the code that it calls, and do that without AOTAutograd."""
