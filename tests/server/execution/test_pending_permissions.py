"""Pending permission requests: the first answer counts, and later ones learn of it."""

from __future__ import annotations

import anyio
import pytest

from hankweave_protocol.errors import ErrorCode, Refused
from hankweave_protocol.ids import CodonId
from hankweave_protocol.records import PendingPermission
from hankweave_server.domain.permission_patterns import Call
from hankweave_server.domain.permissions import PermissionVerdict
from hankweave_server.execution.context import REMEMBERED, PendingPermissions
from support.histories import MOMENT

CALL = Call("Bash", ("git status",))
YES, NO = PermissionVerdict("allow", "client"), PermissionVerdict("deny", "client")


def request(name: str) -> PendingPermission:
    return PendingPermission(
        codon_id=CodonId("one"),
        request_id=name,
        tool_name="Bash",
        tool_input={},
        expires_at=MOMENT,
        reason="",
    )


async def code_of(requests: PendingPermissions, name: str) -> ErrorCode:
    with pytest.raises(Refused) as refused:
        await requests.answer(name, NO)

    return refused.value.code


async def test_the_first_answer_counts_and_waits_until_it_is_settled() -> None:
    """Between answer and settlement a request is not pending, but already answered."""
    requests = PendingPermissions()
    waiting = requests.add(request("a"), CALL)
    done = anyio.Event()

    async def answer() -> None:
        await requests.answer("a", YES)
        done.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer)
        await waiting.answered.wait()
        assert waiting.answer is YES
        assert requests.pending == ()
        assert await code_of(requests, "a") is ErrorCode.PERMISSION_ANSWERED
        waiting.settle_by(NO)
        assert waiting.answer is YES
        requests.remove(waiting)
        assert await code_of(requests, "a") is ErrorCode.PERMISSION_ANSWERED
        assert not done.is_set()
        waiting.settled.set()

    assert done.is_set()


async def test_pending_requests_are_listed_and_an_unknown_one_names_them() -> None:
    """Requests are listed in order; long after its answer a request is forgotten."""
    requests = PendingPermissions()
    first, _ = (
        requests.add(request("a"), CALL),
        requests.add(request("b"), CALL),
    )
    assert [each.request_id for each in requests.pending] == ["a", "b"]
    with pytest.raises(Refused) as refused:
        await requests.answer("c", NO)

    assert refused.value.code is ErrorCode.UNKNOWN_PERMISSION
    assert refused.value.hint == "Pending requests: a, b."
    requests.remove(first)
    for number in range(REMEMBERED):
        requests.remove(requests.add(request(f"r{number}"), CALL))

    assert await code_of(requests, "a") is ErrorCode.UNKNOWN_PERMISSION
    assert requests.new_id() != requests.new_id()
