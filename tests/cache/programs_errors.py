"""Programs whose second part raises, with more around it than the function: a second process finds both parts."""

from __future__ import annotations

from two_processes import Program

from torchdynamo.bytecode import versions

ERRORS: dict[str, Program] = {
    "leaves_with_blocks": Program(
        """
        def f(x, at):
            with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
                y = x.sin() + 1
                print(end="")
                x.add_(1)
                z = y.cos().index_select(0, at)
            return z
        def args(): return torch.ones(3), torch.tensor([5])
        """
    ),
    "in_a_module_after_a_break": Program(
        """
        class Net(torch.nn.Module):
            def forward(self, x, at):
                y = x.sin() + 1
                print(end="")
                return y.cos().index_select(0, at)
        net = Net()
        def f(x, at): return net(x + 1, at) * 2
        def args(): return torch.ones(3), torch.tensor([5])
        """
    ),
    "at_a_break_in_a_module": Program(
        """
        class Net(torch.nn.Module):
            def forward(self, x):
                y = x.sin() + 1
                open("/no/such/folder/file")
                return y.cos()
        net = torch.nn.Sequential(Net())
        def f(x): return net(x + 1) * 2
        def args(): return (torch.ones(3),)
        """
    ),
}

if not versions.ONE_FRAME_SHOWN:  # the rest of a function has a frame of its own in tracebacks
    ERRORS.clear()
