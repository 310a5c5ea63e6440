"""A black-box judge of a running engine: `kvcanon probe URL`.

The probe plays prompts to a server that it did not start, over the server's own HTTP interface, and
judges tokens, cached tokens and KV events. `transport` sends, `sglang_api` and `openai_api` speak
the dialects, `rounds` draws the prompts, `request_judge` decides, `reduction` finds the requests
that show a finding, and `session` is the whole run.
"""
