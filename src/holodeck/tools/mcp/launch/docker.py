"""Checks the arguments of `docker`: only `docker run` with an image and flags that keep the container isolated.

A flag passes only if it is known to be harmless. Mounts are judged twice. `check` sees their paths only: folders of the
system, whole home folders, keys, start-up files and sockets are refused. `check_mount_targets` follows symbolic links,
and refuses everything that is not below the folder of the file. `hardening_flags` are those that a container gets
unless the arguments have their own.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from holodeck.lib.record import record
from holodeck.tools.mcp.launch.flags import Option, Options, scan
from holodeck.tools.mcp.launch.refusal import LaunchFinding, quote_flag

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
# Folders of a home folder that are refused as a whole but allowed in part: a server may need `~/.config/gcloud`.
_MAY_BE_BELOW = frozenset({".config", ".local", "library", ".docker", ".cache", "go"})
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
_LINK = "would give the container a folder outside the agent's own, to which a symbolic link leads"
_OUTSIDE = "would give the container a folder that '..' leads to"
_ELSEWHERE = "would give the container a file or folder that is not below the folder of the agent file"
_MOUNT_ADVICE = "Mount what is below the folder of the agent file"


def volume_danger(value: str, cwd: str | None) -> str | None:
    """Return what is wrong with `-v value`, or None when a server may have it."""
    drive = re.match(r"([A-Za-z]:[\\/][^:]*):", value)
    source, _, rest = (drive[1], ":", value[drive.end() :]) if drive else value.partition(":")
    # Only a path inside the container.
    if not rest:
        return None
    options = rest.split(":")[1:]
    return _source_danger(source, cwd, is_read_only="ro" in ",".join(options).split(","))


def mount_danger(value: str, cwd: str | None) -> str | None:
    """Return what is wrong with `--mount value`, or None when a server may have it."""
    if '"' in value or "\n" in value or "\r" in value:
        return "has quotes or line breaks, in which a folder of this machine can hide"
    fields = _mount_fields(value)
    for key, text in fields:
        if key in _BIND_KEYS:
            reason = _source_danger(text, cwd, is_read_only=_is_read_only(fields))
            if reason:
                return reason
        elif key not in _MOUNT_KEYS:
            return "has a field that is not known to be harmless; the options of a volume driver can name any folder"
        elif key == "type" and text.lower() not in _MOUNT_TYPES:
            return "is of a kind that is not known to be harmless"
    return None


@record
class _HostFolder:
    """A folder of this machine, as lower-case parts: file systems of macOS and Windows ignore case."""

    parts: tuple[str, ...]
    is_below_home: bool = False
    """True when the parts are relative to a home folder."""


def _source_danger(source: str, cwd: str | None, *, is_read_only: bool) -> str | None:
    text = source.strip().replace("\\", "/").lower()
    # The name of a volume.
    if not text or not ("/" in text or text.startswith((".", "~", "$", "%")) or _DRIVE.match(text)):
        return None
    if ".sock" in text or "/./pipe/" in text:
        return _SOCKET
    folder = _locate_folder(text, (cwd or ".").replace("\\", "/").lower())
    if folder is None:
        return _OUTSIDE
    if folder.is_below_home:
        return _home_danger(folder.parts)
    if is_read_only and "/" + "/".join(folder.parts) in _READABLE:
        return None
    return _root_danger(folder.parts)


def _locate_folder(text: str, cwd: str) -> _HostFolder | None:
    """Return None when only the file system can resolve the path."""
    if not (text.startswith(("/", "~", "$", "%")) or _DRIVE.match(text)):
        text = posixpath.join(cwd, text)
    home, drive = _HOME_NAME.match(text), _DRIVE.match(text)
    rest = text[home.end() :] if home else text[drive.end() :] if drive else text
    parts = _split_path(f".{rest}" if home else f"/{rest}" if drive else rest)
    if ".." in parts:
        return None
    if home:
        return _HostFolder(parts=parts, is_below_home=True)
    # Relative to the folder of the agent file.
    if not drive and not text.startswith("/"):
        return _HostFolder(parts=("agent", *parts))
    # Other names on macOS for `/` and for the parent of `/etc`.
    for alias in (("volumes", "macintosh hd"), ("private",)):
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


_GLOBAL_SWITCHES = frozenset({"-D", "--debug"})
_GLOBAL_LEVEL = frozenset({"-l", "--log-level"})
_OTHER_DAEMON = "would have another Docker daemon, or other settings of docker, start the container"
_GLOBAL_REFUSED = frozenset({"-H", "--host", "-c", "--context", "--config", "--tlscacert", "--tlscert", "--tlskey"})

_SWITCHES = frozenset(
    {"-i", "--interactive", "-t", "--tty", "--rm", "--init", "--read-only", "-P", "--publish-all", "-q", "--quiet"}
    | {"--no-healthcheck", "--sig-proxy"}
)
_HARMLESS = frozenset(
    {"-e", "--env", "-w", "--workdir", "--name", "-u", "--user", "-h", "--hostname", "--domainname", "-l", "--label"}
    | {"-p", "--publish", "--expose", "--add-host", "--dns", "--dns-opt", "--dns-option", "--dns-search", "--link"}
    | {
        "--ip",
        "--ip6",
        "--link-local-ip",
        "--mac-address",
        "--network-alias",
        "--net-alias",
        "--tmpfs",
        "-a",
        "--attach",
    }
    | {"-m", "--memory", "--memory-reservation", "--memory-swap", "--memory-swappiness", "--cpus", "-c", "--cpu-shares"}
    | {"--cpu-period", "--cpu-quota", "--cpuset-cpus", "--cpuset-mems", "--pids-limit", "--shm-size", "--ulimit"}
    | {
        "--gpus",
        "--cap-drop",
        "--platform",
        "--pull",
        "--stop-signal",
        "--stop-timeout",
        "--detach-keys",
        "--group-add",
    }
    | {"--health-cmd", "--health-interval", "--health-retries", "--health-start-period", "--health-timeout"}
    | {"--health-start-interval", "--blkio-weight", "--oom-score-adj"}
)
_POWERS = "would give the container powers over this machine"
_DEVICE = "would give the container a device of this machine"
_BACKGROUND = "would leave the container running where nobody can talk to it"
_REFUSED_SWITCHES: Mapping[str, str] = {
    "--privileged": _POWERS,
    "--use-api-socket": "would let the container command Docker itself",
    "--oom-kill-disable": "would let the container take all the memory of this machine",
    "-d": _BACKGROUND,
    "--detach": _BACKGROUND,
}
_REFUSED: Mapping[str, str] = {
    "--cap-add": _POWERS,
    "--device": _DEVICE,
    "--device-cgroup-rule": _DEVICE,
    "--volumes-from": "would give the container the folders of another one",
    "--volume-driver": "would have another driver choose the folders of the container",
    "--entrypoint": "would run another program of the image than its server",
    "--env-file": "would read variables from a file",
    "--label-file": "would read a file of this machine",
    "--cidfile": "would write a file on this machine",
    "--runtime": "would run the container with another runtime, which may isolate it less",
    "--cgroup-parent": _POWERS,
    "--sysctl": "would change settings of the kernel",
    "--annotation": "would give options to the program that runs containers",
    "--storage-opt": "would give options to the storage of Docker",
    "--log-opt": "would give options to the log driver, which can send the server's output elsewhere",
    "--restart": "would start the container again after the tool is closed",
}
_ADVICE: Mapping[str, str] = {
    "--env-file": "Use 'envFile' on this tool",
    "--restart": "Remove it: HoloDeck restarts servers itself",
}


def _namespace_danger(value: str) -> str | None:
    is_own = value.strip().lower() in {"", "private", "shareable", "none"}
    return (
        None if is_own else "would let the container share this machine's, or another container's, processes or users"
    )


def _network_danger(value: str) -> str | None:
    name = value.strip().lower()
    if "=" in name:
        names = [text for key, _, text in (field.partition("=") for field in name.split(",")) if key.strip() == "name"]
        name = names[-1].strip() if names else ""
    if name == "host":
        return "would let the container use this machine's own network, with everything that listens on localhost"
    return "would let the container share the network of another one" if ":" in name or "/" in name else None


def _security_danger(value: str) -> str | None:
    is_hardening = value.strip().lower() in {"no-new-privileges", "no-new-privileges:true", "no-new-privileges=true"}
    return None if is_hardening else "would weaken the isolation of the container"


def _log_driver_danger(value: str) -> str | None:
    return None if value in {"none", "local", "json-file"} else "would send the server's output elsewhere"


_VALUE_CHECKS: Mapping[str, Callable[[str], str | None]] = {
    "--pid": _namespace_danger,
    "--ipc": _namespace_danger,
    "--uts": _namespace_danger,
    "--userns": _namespace_danger,
    "--cgroupns": _namespace_danger,
    "--net": _network_danger,
    "--network": _network_danger,
    "--security-opt": _security_danger,
    "--log-driver": _log_driver_danger,
}
_MOUNTS: Mapping[str, Callable[[str, str | None], str | None]] = {
    "-v": volume_danger,
    "--volume": volume_danger,
    "--mount": mount_danger,
}
_MUST_BE_ON: Mapping[str, str] = {
    "-i": "set to false would close the server's standard input",
    "--interactive": "set to false would close the server's standard input",
    "--rm": "set to false would keep the container after the tool is closed",
}
_VALUED = frozenset(_HARMLESS | _REFUSED.keys() | _VALUE_CHECKS.keys() | _MOUNTS.keys())
_TRUE = frozenset({"1", "t", "true"})


# A server needs far less; a runaway one must not take all of this machine.
MAX_PROCESSES = 512
MAX_MEMORY = "2g"


def hardening_flags(options: Options) -> list[str]:
    """Return the flags that restrict a container, without those that the arguments decide themselves."""
    flags = []
    if not options.has_any("--cap-drop", "--cap-add", "--privileged"):
        flags.append("--cap-drop=ALL")
    has_own = any(value.strip().startswith("no-new-privileges") for value in options.values("--security-opt"))
    if not has_own and not options.has_any("--privileged"):
        flags.append("--security-opt=no-new-privileges")
    if not options.has_any("--pids-limit"):
        flags.append(f"--pids-limit={MAX_PROCESSES}")
    if not options.has_any("-m", "--memory"):
        flags.append(f"--memory={MAX_MEMORY}")
    return flags


@record
class _BindMount:
    """A path of this machine that a flag mounts into the container."""

    source: str
    is_read_only: bool


def check_mount_targets(args: Sequence[str], folder: Path, cwd: Path) -> list[LaunchFinding]:
    """Return a finding for each mount that is not below `folder` once its symbolic links are followed.

    `folder`: that of the agent file. `cwd`: where the container is started, which relative paths of mounts start from.
    """
    start = find_run_position(args)
    if start is None:
        return []
    found = []
    for option in scan_run_options(args, start).found:
        reasons = [_target_danger(mount, folder.absolute(), cwd.absolute()) for mount in _find_bind_mounts(option)]
        for reason in filter(None, reasons):
            message = f"'{option.name}' {reason}"
            found.append(LaunchFinding(index=option.index, message=message, advice=_MOUNT_ADVICE))
    return found


def _target_danger(mount: _BindMount, folder: Path, cwd: Path) -> str | None:
    path = cwd / Path(mount.source).expanduser()
    written = Path(os.path.normpath(path))
    # Two, because docker removes `..` before links are followed, and other engines do not.
    targets = {path.resolve(), written.resolve()}
    if all(target.is_relative_to(folder.resolve()) for target in targets):
        # Also below the folder, a socket leads to a program outside.
        return _SOCKET if any(target.is_socket() for target in targets) else None
    if mount.is_read_only and str(written) in _READABLE:
        return None
    return _LINK if written.is_relative_to(folder) else _ELSEWHERE


def _find_bind_mounts(option: Option) -> list[_BindMount]:
    """Return what a flag mounts of this machine; not the names of volumes."""
    value = option.value or ""
    if option.name in {"-v", "--volume"}:
        source, _, rest = value.partition(":")
        is_read_only = "ro" in ",".join(rest.split(":")[1:]).split(",")
        is_path = "/" in source or source.startswith((".", "~"))
        return [_BindMount(source=source, is_read_only=is_read_only)] if rest and is_path else []
    if option.name != "--mount":
        return []
    fields = _mount_fields(value)
    # Only a bind mount may have a path without any slash: it is a name in the current folder.
    is_bind = any(key == "type" and text.lower() == "bind" for key, text in fields)
    sources = [text for key, text in fields if key in _BIND_KEYS and (is_bind or "/" in text)]
    return [_BindMount(source=source, is_read_only=_is_read_only(fields)) for source in sources]


def _mount_fields(value: str) -> list[tuple[str, str]]:
    pairs = (field.partition("=") for field in value.split(","))
    return [(key.strip().lower(), text.strip()) for key, _, text in pairs]


def _is_read_only(fields: Sequence[tuple[str, str]]) -> bool:
    return any(key in {"readonly", "ro"} and text.lower() in {"", "true", "1", "t"} for key, text in fields)


def find_run_position(args: Sequence[str]) -> int | None:
    """Return the index of the first flag of `docker run`, or None when the command is a different one."""
    at = _scan_global_options(args).end
    if list(args[at : at + 2]) == ["container", "run"]:
        return at + 2
    return at + 1 if list(args[at : at + 1]) == ["run"] else None


def scan_run_options(args: Sequence[str], start: int) -> Options:
    """Parse the flags of `docker run`, which begin at `start`."""
    return scan(args, start, switches=_SWITCHES | _REFUSED_SWITCHES.keys(), valued=_VALUED)


def check(args: Sequence[str], cwd: str | None) -> list[LaunchFinding]:
    """Return a finding for each argument before the image that is not known to keep the container isolated."""
    found = [
        LaunchFinding(index=option.index, message=f"{quote_flag(option.name)} before 'run' {_OTHER_DAEMON}")
        for option in _scan_global_options(args).found
        if option.name not in _GLOBAL_SWITCHES | _GLOBAL_LEVEL
    ]
    start = find_run_position(args)
    if start is None:
        at = _scan_global_options(args).end
        message = (
            "only 'docker run' starts a server in a container of its own; another command can do anything docker can"
        )
        return [*found, LaunchFinding(index=at if at < len(args) else None, message=message, advice="Use 'run'")]
    options = scan_run_options(args, start)
    found += [finding for finding in (_check_option(option, cwd) for option in options.found) if finding]
    if options.end >= len(args) and all(option.is_known for option in options.found):
        found.append(LaunchFinding(index=None, message="no image is named for docker to run", advice="Name the image"))
    return found


def _scan_global_options(args: Sequence[str]) -> Options:
    return scan(args, 0, switches=_GLOBAL_SWITCHES | {"--tls", "--tlsverify"}, valued=_GLOBAL_LEVEL | _GLOBAL_REFUSED)


def _check_option(option: Option, cwd: str | None) -> LaunchFinding | None:
    name, value = option.name, option.value or ""
    if not option.is_known:
        message = f"{quote_flag(name)} is not a flag of docker run that is known to be harmless"
        return LaunchFinding(index=option.index, message=message)
    reason = _REFUSED.get(name) or _REFUSED_SWITCHES.get(name)
    if name in _VALUE_CHECKS:
        reason = _VALUE_CHECKS[name](value)
    elif name in _MOUNTS:
        reason = _MOUNTS[name](value, cwd)
    elif name in _MUST_BE_ON and option.value is not None and value.lower() not in _TRUE:
        reason = _MUST_BE_ON[name]
    if reason is None:
        return None
    return LaunchFinding(index=option.index, message=f"'{name}' {reason}", advice=_ADVICE.get(name, "Remove it"))
