"""The ``scrapy-lease`` command.

A module of this package without an underscore in its name is a sub-command of that name, which it offers as
``command``; it is imported only when it is asked for.

Exit status: 0; 1: what was asked for is not so; 2: wrong usage.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import click
from scrapy.settings import Settings
from scrapy.utils.project import get_project_settings

from scrapy_lease.exceptions import LeaseError

F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class StoreOptions:
    """Which store, namespace and job a command is about; None: what the project's settings say."""

    url: str | None = None
    namespace: str | None = None
    job: str | None = None

    def settings(self) -> Settings:
        """Return the settings of the Scrapy project around the working directory, under these options."""
        settings = get_project_settings()
        chosen = {"LEASE_REDIS_URL": self.url, "LEASE_NAMESPACE": self.namespace, "LEASE_JOB": self.job}
        for name, value in chosen.items():
            if value is not None:
                settings.set(name, value, priority="cmdline")
        return settings


class LazyGroup(click.Group):
    """A group whose sub-commands are modules, imported when asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all sub-commands."""
        return sorted(module.name for module in pkgutil.iter_modules(__path__) if "_" not in module.name)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the sub-command of that name, if there is one."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command = importlib.import_module(f"{__name__}.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the sub-command; an error of ours is one line and exit status 1."""
        try:
            return super().invoke(ctx)
        except LeaseError as error:
            raise click.ClickException(str(error)) from error


def _remember(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        setattr(ctx.ensure_object(StoreOptions), str(param.name), value)


def store_options(function: F) -> F:
    """Let a command take ``--url``, ``--namespace`` and ``--job``; its context's `StoreOptions` has them.

    `main` takes them already; a command that takes them too lets people write them after its name.
    """
    described = {
        "url": "Store to look at, in place of LEASE_REDIS_URL.",
        "namespace": "Namespace of the crawls, in place of LEASE_NAMESPACE.",
        "job": "Job, in place of LEASE_JOB.",
    }
    for name, text in described.items():
        function = click.option(f"--{name}", callback=_remember, expose_value=False, is_eager=True, help=text)(function)
    return function


def json_option(function: F) -> F:
    """Let a command take ``--json`` as its argument ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def print_fields(fields: Mapping[str, Any], as_json: bool) -> None:
    """Print named values, for a program or one a line for people (None is shown as a dash)."""
    if as_json:
        click.echo(json.dumps(fields))
        return
    width = max(map(len, fields))
    for name, value in fields.items():
        shown = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else value
        shown = {True: "yes", False: "no"}.get(shown, shown) if isinstance(shown, bool) else shown
        click.echo(f"{name:<{width}}  {'-' if shown in (None, '') else shown}")


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="scrapy-lease", prog_name="scrapy-lease")
@store_options
@click.pass_context
def main(ctx: click.Context) -> None:
    """Look at, feed and steer crawls that work together through scrapy-lease.

    In a Scrapy project the store is the one of its settings; elsewhere name it with --url.
    """
    ctx.ensure_object(StoreOptions)
