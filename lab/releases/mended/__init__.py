"""SGLang's own core with a mend for each difference to kvcanon's that is accepted."""
