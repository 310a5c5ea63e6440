"""Real SGLang servers with a tiny model, played end to end by one script for every tree core.

A script is data: rounds of requests with the tokens that transformers computes for them. It is
drawn from a seed (`script_rounds`), played over HTTP (`player`), and what came back is a
transcript. `verdict` compares transcripts: tokens with transformers', cached tokens and events with
those of SGLang's Rust core. `core_faults` plants faults in a tree core, each of which the script
must find.

Everything but `__main__` and `server_environment` runs in the environment of servers: that of the
SGLang release, with the packages of `server_packages.txt`. All traffic stays on the loopback.
"""
