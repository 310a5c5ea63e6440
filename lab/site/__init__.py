"""The site of `make docs`: a page for each law, and the tables and pictures of the docs.

`python -m kvcanon.lab.site FOLDER` writes Markdown; mkdocs makes the site of it. Everything
on a law's page comes from the checkout: the law and its code from spec/, its witnesses from the
vectors, its mutants from lab/mutants/planted, and what was proved, exhausted and found from docs/.
"""
