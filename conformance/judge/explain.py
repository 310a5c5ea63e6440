"""Explanations: violations as text, with the law, the operation and the law's first sentence.

One fault breaks many laws, and the first of them is not always the most telling, so all are listed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from attrs import fields

from kvcanon.conformance.judge.key_text import key_in_words, legend
from kvcanon.spec.law import Law, Violation
from kvcanon.spec.operations import Operation, Outcome
from kvcanon.spec.types import Key
from kvcanon.spec.views import Step

LONGEST = 160
"""The most characters of a field that are shown."""


def explain(
    violations: Sequence[Violation], step: Step, number: int, broken_before: Collection[str] = ()
) -> str:
    """Explain what the operation of this number broke, law by law.

    Laws in `broken_before` were broken before it, too, so that it is not to blame for them.
    """
    asked, answered = in_words(step.operation), in_words(step.outcome)
    words = explain_violations(violations, number, asked, answered, broken_before)
    named = legend(words, step.after, step.before)
    lines = [f"    {name}: {what}" for name, what in named.items()]
    return "\n".join([words, "", "Where that is:", *lines]) if lines else words


def explain_violations(
    violations: Sequence[Violation],
    number: int,
    asked: str,
    answered: str,
    broken_before: Collection[str] = (),
) -> str:
    """Like `explain`, for an operation and an answer that are text already."""
    count = "1 violation" if len(violations) == 1 else f"{len(violations)} violations"
    lines = [
        f"{count} after operation {number}, {asked},",
        f"which was answered {answered}:",
    ]
    for law in {violation.law.law_id: violation.law for violation in violations}.values():
        texts = [violation.text for violation in violations if violation.law is law]
        lines += ["", f"{law.law_id} {law.name}: {texts[0]}"]
        if len(texts) > 1:
            lines.append(f"    ... and {len(texts) - 1} more, as: {texts[1]}")
        lines += [f"    The law: {sentence(law)}", f"    Its page: {law.address}"]
        if law.law_id in broken_before:
            lines.append("    It was broken before, by an operation that was not judged.")
    return "\n".join(lines)


def sentence(law: Law) -> str:
    """Return the first paragraph of a law's text."""
    return " ".join(law.statement.split("\n\n")[0].split())


def in_words(value: Operation | Outcome) -> str:
    """Return an operation or an outcome as text, with long fields shortened."""
    parts = [f"{each.name}={_shortened(getattr(value, each.name))}" for each in fields(type(value))]
    return f"{type(value).__name__}({', '.join(parts)})"


def _shortened(value: object) -> str:
    if isinstance(value, Key):
        return key_in_words(value)
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
