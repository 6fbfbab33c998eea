"""Find repeated subgraphs of a graph, prove them equal, and move one copy to a body that the others call."""
