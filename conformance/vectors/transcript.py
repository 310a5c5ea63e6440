"""The transcript: what the plain cache is asked in a case, and what it answers, as a digest.

What readers get wrong: slots and ids are left out, as where two caches are compared. So a digest
stays the same when the plain cache numbers them otherwise.
"""

from __future__ import annotations

import json
from hashlib import sha256

from kvcanon.conformance.cases.actions import act
from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.cases.client import Client, Stamps
from kvcanon.conformance.observe.agreement import Recorder
from kvcanon.conformance.protocol.adapter import Adapter, make_subject
from kvcanon.conformance.protocol.wire import to_json
from kvcanon.reference import ReferenceCache

PLAIN = Adapter("reference", ReferenceCache)


def transcript_of(case: Case) -> str:
    """The digest of all operations and answers of a case."""
    subject = make_subject(PLAIN, case.config)
    recorder = Recorder(subject.cache, recording=True)
    client = Client(recorder, subject.can, subject.copies, Stamps(case.config.slot_bytes))
    for action in case.actions:
        act(client, *action)
    if case.drain:
        client.drain(case.drain)
    facts = json.dumps([to_json(fact) for fact in recorder.facts], sort_keys=True)
    return sha256(facts.encode()).hexdigest()
