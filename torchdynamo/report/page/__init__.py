"""Write a report as one HTML file that needs no network."""

from torchdynamo.report.page.document import page

__all__ = ["page"]
