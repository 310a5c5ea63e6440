"""The specification as a document: its chapters, made from the code and the docstrings of spec/."""
