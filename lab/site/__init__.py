"""The book: the pages of the laws, from the spec, for the site that `make docs` builds.

`python -m kvcanon.lab.site FOLDER` writes Markdown; mkdocs makes the site of it. Everything
on a law's page comes from the checkout: the law and its code from spec/, its witnesses from the
vectors, its mutants from tests/, and what was proved, exhausted and found from docs/.
"""
