"""The site of `make docs`: the specification as chapters, a page for each law, tables, pictures.

`python -m kvcanon.lab.site FOLDER` writes Markdown; mkdocs makes the site of it. The chapters are
made from spec/. Everything on a law's page comes from the checkout: the law and its code from
spec/, its witnesses from the vectors, its mutants from lab/mutants/planted, and what was proved,
exhausted and found from docs/.
"""
