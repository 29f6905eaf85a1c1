"""Which folders of this machine a container may have: a project's, but not the system's, no whole home, no socket."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

_SYSTEM = frozenset(
    {"bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "run", "sbin", "sys", "usr"}
    | {"system", "library", "applications", "cores", "windows", "program files", "program files (x86)", "programdata"}
)
_SYSTEM_BELOW_VAR = frozenset({"run", "lib", "spool", "cache", "db", "root", "backups"})
_HOMES = frozenset({"home", "users"})
_DISKS = frozenset({"volumes", "mnt", "media", "host_mnt"})
_READABLE = frozenset({"/etc/localtime", "/etc/timezone", "/etc/ssl/certs", "/etc/ca-certificates", "/etc/pki"})
_START_UP = frozenset(
    {".ssh", ".gnupg", ".docker", ".colima", ".orbstack", ".lima", ".rd", ".config", ".local", "library"}
    | {".nvm", ".npm", ".pyenv", ".cargo", ".volta", ".bun", ".deno", ".asdf", ".cache", "bin", "go"}
    | {".bashrc", ".bash_profile", ".bash_login", ".profile", ".zshrc", ".zshenv", ".zprofile", ".gitconfig", ".npmrc"}
)
_MAY_BE_BELOW = frozenset(
    {".config", ".local", "library", ".docker", ".cache", "go"}
)  # `~/.config/gcloud` is what a server needs
_NEVER_BELOW = frozenset(
    {"autostart", "systemd", "launchagents", "launchdaemons", "bin", "run", "cli-plugins", "environment.d", "uv"}
)

_DRIVE = re.compile(r"(?:(?:/mnt|/host_mnt|/run/desktop/mnt/host)?/{1,2}([a-z])|([a-z]):)(?=/|$)")
_HOME_NAME = re.compile(r"(?:~|\$home|\$\{home\}|\$env:userprofile|%userprofile%)(?=/|$)")
_BIND_KEYS = frozenset({"source", "src"})
_MOUNT_KEYS = frozenset(
    {"type", "target", "dst", "destination", "readonly", "ro", "consistency", "volume-nocopy", "volume-subpath"}
    | {"bind-propagation", "bind-recursive", "bind-nonrecursive", "tmpfs-size", "tmpfs-mode", "image-subpath"}
)
_MOUNT_TYPES = frozenset({"bind", "volume", "tmpfs", "image"})

_DISK = "would give the container the whole disk"
_SYSTEM_FOLDER = "would give the container a folder of the system"
_HOME = "would give the container a whole home folder"
_KEYS = "would give the container keys, start-up files or programs of a home folder"
_SOCKET = "would give the container a socket, through which it can command programs outside"
_OUTSIDE = "would give the container a folder that '..' leads to"


def volume_danger(value: str, cwd: str | None) -> str | None:
    """What `-v value` would do, if it is more than a server may have."""
    drive = re.match(r"([A-Za-z]:[\\/][^:]*):", value)
    source, _, rest = (drive[1], ":", value[drive.end() :]) if drive else value.partition(":")
    if not rest:
        return None  # only a path inside the container
    options = rest.split(":")[1:]
    return _source_danger(source, cwd, is_read_only="ro" in ",".join(options).split(","))


def mount_danger(value: str, cwd: str | None) -> str | None:
    """What `--mount value` would do, if it is more than a server may have."""
    if '"' in value or "\n" in value or "\r" in value:
        return "has quotes or line breaks, in which a folder of this machine can hide"
    fields = [
        (key.strip().lower(), text.strip()) for key, _, text in (field.partition("=") for field in value.split(","))
    ]
    is_read_only = any(key in {"readonly", "ro"} and text.lower() in {"", "true", "1", "t"} for key, text in fields)
    for key, text in fields:
        if key in _BIND_KEYS:
            reason = _source_danger(text, cwd, is_read_only=is_read_only)
            if reason:
                return reason
        elif key not in _MOUNT_KEYS:
            return "has a field that is not known to be harmless; the options of a volume driver can name any folder"
        elif key == "type" and text.lower() not in _MOUNT_TYPES:
            return "is of a kind that is not known to be harmless"
    return None


@dataclass(frozen=True, kw_only=True)
class _HostFolder:
    """A folder of this machine, in parts. Lower case: a Mac and Windows do not tell the difference."""

    parts: tuple[str, ...]
    is_below_home: bool = False
    """The parts are those below a home folder."""


def _source_danger(source: str, cwd: str | None, *, is_read_only: bool) -> str | None:
    text = source.strip().replace("\\", "/").lower()
    if not text or not ("/" in text or text.startswith((".", "~", "$", "%")) or _DRIVE.match(text)):
        return None  # the name of a volume
    if ".sock" in text or "/./pipe/" in text:
        return _SOCKET
    place = _locate_folder(text, (cwd or ".").replace("\\", "/").lower())
    if place is None:
        return _OUTSIDE
    if place.is_below_home:
        return _home_danger(place.parts)
    if is_read_only and "/" + "/".join(place.parts) in _READABLE:
        return None
    return _root_danger(place.parts)


def _locate_folder(text: str, cwd: str) -> _HostFolder | None:
    """None when only the file system could say where it is."""
    if not (text.startswith(("/", "~", "$", "%")) or _DRIVE.match(text)):
        text = posixpath.join(cwd, text)
    home, drive = _HOME_NAME.match(text), _DRIVE.match(text)
    rest = text[home.end() :] if home else text[drive.end() :] if drive else text
    parts = _split_path(f".{rest}" if home else f"/{rest}" if drive else rest)
    if ".." in parts:
        return None
    if home:
        return _HostFolder(parts=parts, is_below_home=True)
    if not drive and not text.startswith("/"):
        return _HostFolder(parts=("agent", *parts))  # below the agent file's folder
    for alias in (("volumes", "macintosh hd"), ("private",)):  # a Mac's other names for / and for what holds /etc
        parts = parts[len(alias) :] if parts[: len(alias)] == alias else parts
    return _relative_to_home(parts)


def _split_path(path: str) -> tuple[str, ...]:
    return tuple(part for part in posixpath.normpath(path).split("/") if part not in {"", "."})


def _relative_to_home(parts: tuple[str, ...]) -> _HostFolder:
    if parts[:1] == ("root",):
        return _HostFolder(parts=parts[1:], is_below_home=True)
    if len(parts) > 1 and parts[0] in _HOMES:
        return _HostFolder(parts=parts[2:], is_below_home=True)
    return _HostFolder(parts=parts)


def _root_danger(parts: tuple[str, ...]) -> str | None:
    if not parts or (len(parts) == 1 and parts[0] in _DISKS):
        return _DISK
    if (
        parts[0] in _SYSTEM
        or parts in {("var",), ("opt",)}
        or parts[:2] == ("opt", "homebrew")
        or (parts[0] == "var" and parts[1] in _SYSTEM_BELOW_VAR)
    ):
        return _SYSTEM_FOLDER
    return _HOME if parts[0] in _HOMES else None


def _home_danger(parts: tuple[str, ...]) -> str | None:
    if not parts:
        return _HOME
    if parts[0] not in _START_UP:
        return None
    is_fine = len(parts) > 1 and parts[0] in _MAY_BE_BELOW and not _NEVER_BELOW.intersection(parts[1:])
    return None if is_fine else _KEYS
