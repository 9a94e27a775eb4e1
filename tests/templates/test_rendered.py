"""What every project must be, whatever was answered: whole, valid, and in good style."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tomllib
from pathlib import Path

import helm_python
import kubernetes_validate
import pytest
import yaml
from conftest import JUSTAPI, NAME, ROOT, WHEEL_PYTHON, Make, run

TOOLS = Path(sys.executable).parent
KUBERNETES = "1.34"
MAX_FILES_OF_MINIMAL = 10


def files(project: Path, *suffixes: str) -> list[Path]:
    found = (path for path in project.rglob("*") if path.is_file())
    return sorted(path for path in found if not suffixes or path.name.endswith(suffixes))


CHECKED: set[bytes] = set()


def is_new(project: Path, *paths: Path) -> bool:
    """Whether files of these bytes are looked at for the first time: most options change few."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.relative_to(project)} {path.stat().st_size} ".encode())
        digest.update(path.read_bytes())
    known = digest.digest() in CHECKED
    CHECKED.add(digest.digest())
    return not known


def test_nothing_of_the_template_is_left(project: Path) -> None:
    for path in files(project):
        inside = path.relative_to(project)
        text = path.read_text()
        assert not re.search(r"\[%|%\]|\[\[ | \]\]|\{%|%\}|\{#", text), inside
        assert not re.search(r"__(module|name)__|dot-[a-z]|\.j2$", str(inside)), inside
        # Expressions of others are whole: of workflows, of charts, of the shell.
        if "helm" not in inside.parts and ".github" not in inside.parts:
            assert "{{" not in text, inside
        if text:
            assert text.endswith("\n") and not text.endswith("\n\n"), inside
            assert "\r" not in text and "\t" not in text, inside
            assert not re.search(r"[^\S\n]\n", text), f"{inside}: space at the end of a line"
            assert "\n\n\n\n" not in text, inside


def test_data_files_parse(project: Path) -> None:
    for path in files(project, ".toml"):
        tomllib.loads(path.read_text())
    for path in files(project, ".json"):
        json.loads(path.read_text())
    for path in files(project, ".yaml", ".yml"):
        if path.parent.name != "templates":
            yaml.safe_load(path.read_text())


def test_the_record_names_every_file(project: Path) -> None:
    record = tomllib.loads((project / ".justapi/template.toml").read_text())
    named = {str(path.relative_to(project)) for path in files(project)}
    assert set(record["files"]) == named - {".justapi/template.toml"}


def test_python_is_in_good_style(project: Path) -> None:
    sources = files(project, ".py")
    if sources and is_new(project, project / "pyproject.toml", *sources):
        run(TOOLS / "ruff", "check", "--no-cache", "--quiet", ".", cwd=project)
        run(TOOLS / "ruff", "format", "--no-cache", "--quiet", "--check", ".", cwd=project)
        code = (
            "import compileall, sys; sys.exit(not compileall.compile_dir('.', quiet=1, force=True))"
        )
        run(WHEEL_PYTHON, "-c", code, cwd=project, PYTHONPYCACHEPREFIX=str(project.parent / "pyc"))


def test_the_server_takes_its_settings(project: Path) -> None:
    if (project / "justapi.toml").exists():
        assert "warning" not in run(JUSTAPI, "config", "check", cwd=project)


def test_containers_are_as_their_tools_want_them(project: Path) -> None:
    schema = (TOOLS / "check-jsonschema", "--quiet", "--builtin-schema")
    docker, compose = project / "Dockerfile", project / "compose.yaml"
    if docker.exists() and is_new(project, docker):
        run(TOOLS / "hadolint", "Dockerfile", cwd=project)
    if compose.exists() and is_new(project, compose):
        run(*schema, "vendor.compose-spec", "compose.yaml", cwd=project)


def test_workflows_are_valid_and_safe(project: Path) -> None:
    schema = (TOOLS / "check-jsonschema", "--quiet", "--builtin-schema")
    folder = project / ".github"
    if not folder.exists() or not is_new(project, *files(folder)):
        return
    for path in files(folder / "workflows"):
        run(*schema, "vendor.github-workflows", path, cwd=project)
        run(*schema, "custom.github-workflows-require-timeout", path, cwd=project)
        assert "${{ github.ref }}" in path.read_text()
    if (folder / "dependabot.yml").exists():
        run(*schema, "vendor.dependabot", folder / "dependabot.yml", cwd=project)
    run(TOOLS / "zizmor", "--offline", "--quiet", "--no-progress", ".github", cwd=project)


# helm's number for what is good to know: here, that a chart may have an icon.
INFORMATION = 1
INGRESS = {"enabled": True, "className": "nginx", "tlsSecret": "tls", "annotations": {"a": "b"}}
VALUES: list[dict[str, object]] = [
    {},
    {
        "ingress": INGRESS,
        "environment": {"TOKEN_DAYS": "3"},
        "imagePullSecrets": [{"name": "pull"}],
        "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "a", "operator": "Exists"}],
    },
]


@pytest.mark.parametrize("db", ["sqlite", "postgres"])
@pytest.mark.parametrize("values", VALUES, ids=["defaults", "all"])
def test_charts_become_valid_manifests(make: Make, db: str, values: dict[str, object]) -> None:
    chart_folder = make("api", db=db) / "deploy/helm" / NAME
    own = {"volume": {"size": "2Gi", "storageClass": "fast"}}
    if db == "postgres":
        own = {"autoscaling": {"enabled": True}, "database": {"secret": "other"}}
    values = values | own if values else values
    findings = helm_python.lint(str(chart_folder), values)
    assert not [finding for finding in findings["messages"] if finding["severity"] > INFORMATION]
    with helm_python.Chart.load(str(chart_folder)) as chart:
        chart.validate_schema(values)
        rendered = chart.render(values, name="shop", namespace="prod")
        with pytest.raises(helm_python.HelmError):
            chart.validate_schema(values | {"replica": 3})
    kinds = []
    for path, text in rendered.items():
        if not path.endswith(".yaml"):
            continue
        for manifest in yaml.safe_load_all(text):
            if manifest is not None:
                kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
                kinds.append(manifest["kind"])
                check_pods(manifest)
    expected = {"Deployment", "Service"}
    expected |= {"PersistentVolumeClaim"} if db == "sqlite" else {"Job", "PodDisruptionBudget"}
    if values:
        expected |= {"Ingress"} | ({"HorizontalPodAutoscaler"} if db == "postgres" else set())
    assert set(kinds) == expected


def check_pods(manifest: dict) -> None:
    """What cluster policies ask of pods, and a stop that waits for the server's."""
    if manifest["kind"] not in ("Deployment", "Job"):
        return
    pod = manifest["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    for container in pod["containers"] + pod.get("initContainers", []):
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"] is True
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]
    if manifest["kind"] == "Deployment":
        (app,) = pod["containers"]
        (seconds,) = app["args"]
        assert pod["terminationGracePeriodSeconds"] > int(seconds.rstrip("s")) + 5
        labels = manifest["spec"]["template"]["metadata"]["labels"]
        assert manifest["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_minimal_is_small(make: Make) -> None:
    project = make("minimal")
    assert len(files(project)) <= MAX_FILES_OF_MINIMAL
    assert len((project / "app.py").read_text().splitlines()) <= 30


def test_module_names_that_are_taken_are_those_of_the_interpreter() -> None:
    """`new` refuses every module of the standard library, by a list that it carries."""
    listed = (ROOT / "templates/src/names/taken.rs").read_text().split("PYTHON_MODULES")[-1]
    listed = set(re.findall(r"\w+", listed.split(";")[0]))
    code = "import keyword, sys; print(*sys.stdlib_module_names)"
    modules = run(WHEEL_PYTHON, "-c", code, cwd=ROOT).split()
    public = {name for name in modules if not name.startswith("_")}
    assert public - listed == set()
