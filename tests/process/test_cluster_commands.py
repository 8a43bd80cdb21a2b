"""What the pages ask somebody to run with a cluster or containers is checked against charts, Compose and Dockerfiles.

Helm is real (test_production_page.py renders with the same options); kubectl and Docker need something to talk to, so
what their commands name is looked up instead. tests/operations/test_kubectl.py runs those of kubectl that make objects,
tests/integration/test_documented_commands.py what is run in containers.
"""

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from django.core.management import get_commands, load_command_class
from django.core.management.base import CommandError

from tests.charts import PROJECT, helm, named, of_kind
from tests.documented import ELSEWHERE, PAGES, RUN_BY, blocks, commands, fences, inside, manifests, words

Object = dict[str, Any]
HERE = [(block.name, text) for page in PAGES for block in blocks(page) for text in commands(block.text)]
KUBECTL, DOCKER, MAKE, COPIES = (
    [text for _, text in HERE if text.split()[0] == program] for program in ("kubectl", "docker", "make", "cp")
)
CHARTS = {
    "suanpan": ("--set", "image.repository=r", "--set", "host=h.example.com", "--set", "database.cloudnativepg.enabled=true",
                "--set", "broker.enabled=true", "--set", "ingress.enabled=true",
                "--set", "database.cloudnativepg.application.secret=suanpan-database"),
    "suanpan-agent": ("--set", "image.repository=r", "--set", "cluster=hq-1", "--set", "endpoint=https://h.example.com",
                      "--set", "certificateAuthority.configMap=company-ca"),
}  # fmt: skip
KINDS = {"deploy": "Deployment", "deployment": "Deployment", "statefulset": "StatefulSet", "service": "Service"}
OF_OTHERS = {"prometheus-k8s-0": "the Prometheus of kube-prometheus"}
COMPOSE = yaml.safe_load((PROJECT / "docker/compose.yaml").read_text(encoding="utf-8"))


@cache
def rendered() -> list[Object]:
    """Both charts, as the pages install them."""
    texts = [
        helm("template", chart, f"docker/charts/{chart}", "--namespace", "suanpan", *given)
        for chart, given in CHARTS.items()
    ]
    assert [done.stderr for done in texts if done.returncode] == []
    return [item for done in texts for item in yaml.safe_load_all(done.stdout) if item]


def short(text: str) -> str:
    return " ".join(text.split()[:6])


def manage_parses(arguments: list[str]) -> None:
    """The command exists, and takes these options."""
    name, *rest = arguments
    load_command_class(str(get_commands()[name]), name).create_parser("manage.py", name).parse_args(rest)


INLINE = {
    text for page in PAGES for text in re.findall(r"`(?:\S+ )?manage\.py (\w+ [^`\n]+)`", page.read_text(encoding="utf-8"))
}
"""Commands with arguments in sentences and tables, such as those of a month."""


@pytest.mark.parametrize("command", sorted(INLINE))
def test_a_command_in_a_sentence_is_taken_as_it_is_written(command: str) -> None:
    manage_parses(words(command))


def test_every_block_is_run_or_checked_or_has_a_reason() -> None:
    """And no block hides its commands behind another name of the shell."""
    assert set().union(*map(fences, PAGES)) <= {"sh", "yaml", "sql", "ini", "python", ""}
    every = [block for page in PAGES for block in blocks(page)]
    for start, test in RUN_BY.items():
        assert sum(block.text.startswith(start) for block in every) == 1, start
        assert f'"{start}' in (PROJECT / test).read_text(encoding="utf-8"), f"{test} does not run it"
    run_here = [block for block in every if block.program in ELSEWHERE]
    left = {words(text)[0] for block in run_here for text in commands(block.text)} - ELSEWHERE
    assert left == set(), "a block of a cluster has a command that nothing checks"


def referenced(item: object, *keys: str) -> set[str]:
    """Names that objects give to Secrets or config maps of others."""
    if isinstance(item, list):
        return set().union(*(referenced(entry, *keys) for entry in item))
    if not isinstance(item, dict):
        return set()
    own = {str(value.get("name", value.get("secretName"))) for key, value in item.items() if key in keys and value}
    return own.union(*(referenced(value, *keys) for value in item.values()))


@pytest.mark.parametrize("command", [text for text in KUBECTL if " exec " in text], ids=short)
def test_what_kubectl_runs_in_is_of_the_chart(command: str) -> None:
    given = words(command)
    target = next(word for word in given[given.index("exec") + 1 :] if not word.startswith("-"))
    if target not in OF_OTHERS:
        kind, name = target.split("/")
        template = named(rendered(), KINDS[kind], name)["spec"]["template"]
        assert template["spec"]["containers"], target
        program, *rest = given[given.index("--") + 1 :]
        assert (PROJECT / program.removeprefix("/app/")).is_file()
        assert rest[0] == "manage"
        assert inside(command), "tests/integration/test_documented_commands.py runs it"


@pytest.mark.parametrize("command", [text for text in KUBECTL if " create " in text], ids=short)
def test_what_kubectl_creates_is_read_by_the_chart(command: str, tmp_path: Path) -> None:
    if "<<" in command:
        made = [(item["kind"], item["metadata"]["name"]) for item in manifests(command, tmp_path)]
    else:
        given = words(command)
        kind, *rest = given[given.index("create") + 1 :]
        made = [({"namespace": "Namespace", "secret": "Secret", "configmap": "ConfigMap"}[kind], rest[kind == "secret"])]
    secrets = {"secretKeyRef", "secretRef", "secret", "superuserSecret", "passwordSecret"}
    for made_kind, name in made:
        keys = {"Namespace": set[str](), "Secret": secrets, "ConfigMap": {"configMap", "configMapKeyRef"}}[made_kind]
        assert name == "suanpan" if made_kind == "Namespace" else name in referenced(rendered(), *keys), name


@pytest.mark.parametrize("command", [text for text in KUBECTL if " create -f - <<" in text], ids=short)
def test_objects_of_a_page_are_what_kubernetes_takes(command: str, tmp_path: Path) -> None:
    for item in manifests(command, tmp_path):
        kubernetes_validate.validate(item, "1.31", strict=True)


def test_what_the_notes_of_the_charts_name_is_rendered() -> None:
    for chart in CHARTS:
        notes = (PROJECT / "docker/charts" / chart / "templates/NOTES.txt").read_text(encoding="utf-8")
        targets = re.findall(r"(deploy|service|statefulset)/(\S+)", notes.replace("{{ .Release.Name }}", chart))
        assert targets
        assert all(named(rendered(), KINDS[kind], target) for kind, target in targets)


@pytest.mark.parametrize("command", [text for text in DOCKER if " compose " in text], ids=short)
def test_a_command_of_compose_names_services_and_commands_that_are_there(command: str) -> None:
    given = words(command.partition(" <")[0].partition(" >")[0])
    file = given[given.index("--file") + 1] if "--file" in given else given[given.index("-f") + 1]
    assert (PROJECT / file).is_file()
    verb, *rest = given[given.index(file) + 1 :]
    assert verb in {"up", "down", "ps", "exec", "run"}
    if verb in {"exec", "run"}:
        at = next(number for number, word in enumerate(rest) if word in COMPOSE["services"])
        started = rest[at + 1 :]
        assert started[:1] in (["python"], ["manage"], ["pg_dump"])
        if started[0] != "pg_dump":
            manage_parses(started[1 if started[0] == "manage" else 2 :])
    else:
        assert [word for word in rest if not word.startswith("-")] == []


@pytest.mark.parametrize("command", [text for text in DOCKER if " compose " not in text], ids=short)
def test_an_image_is_built_from_files_and_arguments_that_are_there(command: str) -> None:
    given = words(command)
    assert given[:2] == ["docker", "build"]
    text = (PROJECT / given[given.index("-f") + 1]).read_text(encoding="utf-8")
    arguments = [given[number + 1].partition("=")[0] for number, word in enumerate(given) if word == "--build-arg"]
    assert [name for name in arguments if not re.search(rf"(?m)^ARG {name}\b", text)] == []
    assert (PROJECT / given[-1]).is_dir()


@pytest.mark.parametrize("command", MAKE, ids=short)
def test_make_knows_what_a_page_makes(command: str) -> None:
    done = subprocess.run(["make", "--dry-run", *words(command)[1:]], cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", COPIES, ids=short)
def test_what_a_page_copies_is_there(command: str) -> None:
    _, source, target = words(command)
    assert (PROJECT / source).is_file()
    assert (PROJECT / target).parent.is_dir()


def test_an_option_that_is_gone_is_found() -> None:
    with pytest.raises((SystemExit, CommandError)):
        manage_parses(["period_close", "2026-10", "--gone"])
    assert of_kind(rendered(), "Deployment")
