"""Runs the test suites of 0-9-1 clients against the router, and holds the outcome against a list.

The suites are their projects' own; nobody needs them to test the router, so they are not fetched
here. Give it a checkout and a Python that has what the suite needs (pika's: pytest, tornado,
twisted and gevent; py-amqp's: pytest-rerunfailures); for amqplib ``npm install`` in the checkout::

    python -m tests.interop.client_suites pika ~/pika --python ~/pika/.venv/bin/python
    python -m tests.interop.client_suites py-amqp ~/py-amqp --python ~/py-amqp/.venv/bin/python
    python -m tests.interop.client_suites amqplib ~/amqplib
    python -m tests.interop.client_suites amqp091-go ~/amqp091-go

amqp091-go's needs Go, 1.16 or later; Debian has it with what it depends on
(golang-github-rabbitmq-amqp091-go-dev; then GOPATH=/usr/share/gocode and GO111MODULE=off).

The suites dial ports 5672 and 5671 of this machine, so nothing else may listen there. What a router
cannot do is in ``SUITES``, test by test with the reason; it ends with 1 if anything else fails, or
if something on the list passes.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import attrs

from tests.support.running import running_router

NOT_OURS: Final = "deletes a shared queue, which is a route's address"
BOUND: Final = "gets what an exchange brought to a shared queue: only consumers have bindings there"
WAITS: Final = "publishes to a shared queue before anybody consumes it: that waits"
NOT_BOUND: Final = "wants back what is published to a routed exchange while nobody is bound to it"
TYPE: Final = "wants 406 for an unknown type of exchange; 0-9-1 has 503"
PRODUCT: Final = "wants the product to be RabbitMQ"
CLOSES: Final = "closes ten times at once: the first is answered, and the stream ends"
REFUSES: Final = "wants not-implemented, as of RabbitMQ: it is implemented"
DEAD_LETTERS: Final = "declares a queue with a dead-letter exchange; a route has dead_letter"
EMPTY: Final = "wants a shared queue to be empty that an earlier test has left a message for"


@attrs.frozen(kw_only=True)
class Suite:
    """One client's suite.

    Attributes:
        routes: of the router.
        command: runs it in its folder; ``{python}`` and ``{report}`` (JUnit's XML) are filled in.
        parts: what of it is run by a command each.
        is_go: it is built by ``command``, into ``{report}``, and its tests are run one by one.
        cannot: pattern of the names of tests → why a router cannot pass them.
    """

    routes: tuple[str, ...] = ()
    command: tuple[str, ...]
    parts: tuple[str, ...] = ("",)
    is_go: bool = False
    cannot: dict[str, str] = attrs.field(factory=dict)

    def config(self) -> str:
        """Writes the router's file."""
        listeners = [f"  - bind: '{host}:5672'" for host in ("127.0.0.1", "[::1]")]
        lines = ["router: {id: suite, admin: off}", "listeners:", *listeners]
        lines += ["routes:", *(f"  - {{{route}}}" for route in self.routes)] if self.routes else []
        return "\n".join(lines) + "\n"

    def reason_for(self, test: str) -> str | None:
        """Tells why a router cannot pass a test; None if it should."""
        found = (reason for pattern, reason in self.cannot.items() if re.search(pattern, test))
        return next(found, None)


BOUND_KEYS: Final = (
    "TestExchangeBindAndUnbind",
    "TestQueueBindAndUnbindAndPurge",
    "TestBasicPublishDeliveredWhenPendingUnroutable",
    "TestPublishAndConsumeAndQos",
    "TestBasicConsumeWithAckFromAnotherThread",
    "TestConsumeGeneratorWithAckFromAnotherThread",
    "TestTwoBasicConsumersOnSameChannel1",
    "TestTwoBasicConsumersOnSameChannel2",
    "TestBasicPublishWithoutPubacks",
    "TestZ_PublishAndConsume",
    "TestZ_PublishAndConsumeBig",
    "TestZ_PublishAndGet",
)
"""Routing keys that pika's tests bind queues with; its queues and exchanges have random names."""

SHARED_QUEUES: Final = (
    *("check-queue", "delete-queue", "send-to-q", "get-empty", "get-message", "route-message-q"),
    *("purge-queue", "unbind-queue", "ex-ex-binding-q", "unbind-ex-queue", "consumer-cancel"),
    *("cancelled-consumer", "ack", "nack", "reject", "prefetch", "confirm-message"),
    *("multiple-confirms", "cb.queue", "cb.bindq", "cb.get-with-error", "cb.consume-with-error"),
)
"""Queues of amqplib's tests."""

BOUND_EXCHANGES: Final = (
    *("cb.bindex", "cb.bindex1", "cb.bindex2", "route-message", "unbind-queue-ex"),
    *("ex-ex-binding1/test.routing.key", "unbind-ex-source", "unbind-ex-dest"),
)
"""Exchanges that they are bound to, with the key if there is one."""

_PYTEST: Final = ("{python}", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml={report}")
_PIKA: Final = (*_PYTEST, "-n", "4", "--timeout=60", "tests/acceptance", "-k")
_NODE: Final = (
    *("node", "--test", "--test-timeout=120000"),
    *("--test-reporter=junit", "--test-reporter-destination={report}"),
    "--test-name-pattern=/^(?!multiple confirms)/",
)
"""Left out is what waits for confirms before it consumes: for ever, and Node's runner with it."""

GO_QUEUES: Final = (
    *("test.#", "test-basic-ops-queue", "test-basic-ops-exchange", "declareArgs-dead-letter"),
    *("test-publish", "test-pubsub", "test-issue48", "test-consumer-cancel-notification"),
    *("test-corrupted-message-regression", "TestPublishConsumeOnly", "cancel"),
    *("test-TestPublishEmptyBody", "test-TestPublishEmptyBodyWithHeaders"),
)
"""Queues and exchanges of amqp091-go's tests."""

SUITES: Final = {
    "pika": Suite(
        routes=(
            *(f"address: '*/{key}', distribution: multicast" for key in BOUND_KEYS),
            "address: nothing, vhost: other",  # so that there are virtual hosts to know
        ),
        command=(*_PYTEST, "-n", "4", "--timeout=60", "tests/acceptance"),
        cannot={
            r"TestExchangeBindAndUnbind|TestQueueBindAndUnbindAndPurge": NOT_BOUND,
            r"TestCloseConnectionFromBasicConsumeCallback": WAITS,
            r"TestInvalidExchangeType": TYPE,
        },
    ),
    "py-amqp": Suite(
        command=(*_PYTEST, "-E", "rabbitmq", "t/integration/test_rmq.py", "-k", "not tls"),
    ),
    "amqplib": Suite(
        routes=(
            *(f"address: test.{name}" for name in SHARED_QUEUES),
            *(f"address: test.{name}, distribution: multicast" for name in BOUND_EXCHANGES),
        ),
        command=_NODE,
        parts=tuple(f"test/{name}.test.js" for name in ("connect", "channel_api", "callback_api")),
        cannot={
            r"delete queue$|cancelled consumer$": NOT_OURS,
            r"binding, consuming: (route message|unbind)": BOUND,
            r"serverProperties$": PRODUCT,
        },
    ),
    "amqp091-go": Suite(
        routes=tuple(f"address: '{name}'" for name in GO_QUEUES),
        command=("go", "test", "-tags", "integration", "-c", "-o", "{report}", "."),
        is_go=True,
        cannot={
            r"TestConcurrentClose$": CLOSES,
            r"TestIntegrationConsumeFlow$|TestIntegrationRecoverNotImplemented$": REFUSES,
            r"TestIntegrationConsumeCancel$|TestIntegrationBasicQueueOperations$": NOT_OURS,
            r"TestDeclareArgsRejectToDeadLetterQueue$": DEAD_LETTERS,
            r"TestIntegrationGetEmpty$": EMPTY,
            r"TestRabbitMQQueueTTLGet$|TestRabbitMQQueueNackMultipleRequeue$": PRODUCT,
        },
    ),
}


def run(suite: Suite, folder: Path, python: str) -> dict[str, str]:
    """Runs a suite; returns each test that ran, with what went wrong, or nothing."""
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as made, running_router(suite.config(), Path(made)):
        for number, part in enumerate(suite.parts):
            report = Path(made) / f"report{number}.xml"
            command = [each.format(python=python, report=report) for each in suite.command]
            command += [part] if part else []
            subprocess.run(command, cwd=folder, check=False, stdout=subprocess.DEVNULL)
            found |= run_each(report, folder) if suite.is_go else read_report(report)
    return found


def run_each(program: Path, folder: Path) -> dict[str, str]:
    """Runs the tests of a Go program one by one: test → what went wrong, empty if nothing did."""
    found: dict[str, str] = {}
    listed = subprocess.run([program, "-test.list", "Test"], check=True, capture_output=True)
    for name in listed.stdout.decode().split():
        command = [str(program), "-test.v", "-test.run", f"^{name}$", "-test.timeout", "60s"]
        ended = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
        found[name] = (ended.stdout + ended.stderr)[-300:] if ended.returncode else ""
    return found


def read_report(report: Path) -> dict[str, str]:
    """Reads JUnit's XML: test → what went wrong, empty if nothing did; without skipped ones."""
    found: dict[str, str] = {}
    if report.exists():
        _read(ElementTree.parse(report).getroot(), "", found)
    return found


def _read(suite: ElementTree.Element, within: str, found: dict[str, str]) -> None:
    for each in suite:
        name = f"{within}{each.get('name')}"
        if each.tag == "testsuite":
            _read(each, f"{name}: ", found)
        elif each.tag == "testcase" and each.find("skipped") is None:
            if name.endswith(".js"):
                continue  # node counts files as tests, too
            faults = [child for child in each if child.tag in ("failure", "error")]
            text = "; ".join((fault.get("message") or fault.tag)[:200] for fault in faults)
            name = f"{Path(each.get('file', '')).name} {each.get('classname')} {name}"
            found[name] = found.get(name) or text


def main() -> int:
    """Runs one suite, prints what became of it, and tells whether that is as listed."""
    parser = argparse.ArgumentParser(description="run a client's own test suite")
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("folder", type=Path, help="its checkout")
    parser.add_argument("--python", default=sys.executable, help="a Python with what it needs")
    told = parser.parse_args()
    suite = SUITES[told.suite]
    faults = run(suite, told.folder, told.python)
    reasons = {test: suite.reason_for(test) for test in faults}
    passed = [test for test, fault in faults.items() if not fault]
    print(f"{told.suite}: {len(passed)} of {len(faults)} pass")
    counted = Counter(reasons[test] for test, fault in faults.items() if fault)
    for reason, count in counted.most_common():
        print(f"{count:4}  {reason or 'NOT LISTED'}")
    unlisted = [test for test, fault in faults.items() if fault and reasons[test] is None]
    better = [test for test in passed if reasons[test] is not None]
    for test in unlisted:
        print(f"fails: {test}: {faults[test]}")
    for test in better:
        print(f"passes, though it is listed: {test}")
    return 1 if unlisted or better or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
