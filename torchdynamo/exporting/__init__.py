"""`torchdynamo.export`: a call as one graph, with what it rests on, in the form of torch.export."""
