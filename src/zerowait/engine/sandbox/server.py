"""The sandbox server: forks one confined process for each program that it is sent.

This file is a script of its own, run by the interpreter that the programs are for. It is forked
from and never executed again, so a program starts within milliseconds, with the standard library
loaded. It imports nothing but the standard library, and knows neither tests nor expected outputs.

Confinement, best first; the first message to the engine says which of these there is:

- namespaces: private mounts (a read-only root of the system's libraries and the interpreter alone,
  a small ``/tmp`` in memory), no network, a process namespace per program, whose end is the end of
  all of its processes;
- else Landlock: of the file system only libraries and the interpreter can be read;
- always seccomp: no network, no new processes, no tracing; without namespaces no writing either.

Without seccomp it refuses to run anything.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import errno
import gc
import json
import os
import platform
import resource
import select
import signal
import socket
import struct
import sys
import time
import types
from collections.abc import Callable, Mapping
from typing import NamedTuple

_MOST_THREADS = 256
_MOST_STARVED = 10
_LEAST_S = 0.02
_LIBC = ctypes.CDLL(None, use_errno=True)
_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER = 0x20000, 0x4000000, 0x8000000, 0x10000000
_NEWPID, _NEWNET = 0x20000000, 0x40000000
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT = 1, 2, 4, 8, 32
_BIND, _REC, _PRIVATE, _DETACH = 4096, 16384, 1 << 18, 2
_SET_PDEATHSIG, _SET_DUMPABLE, _SET_SECCOMP, _SET_NO_NEW_PRIVS = 1, 4, 22, 38
_SYSTEM = (
    *("/usr", "/lib", "/lib64", "/lib32", "/bin", "/nix/store"),
    *("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime"),
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_MOUNT_POINTS = ("/tmp", "/mnt", "/media", "/srv", "/var/tmp", "/home")  # noqa: S108 - covered by a private mount
_BUILTIN_NAMES = frozenset(dir(builtins))
_HARNESS: list[types.CodeType] = []
_PROC: list[int] = []
_UIDS = range(61184, 65520)  # the systemd range for services without an account

# ---- seccomp -------------------------------------------------------------------------------------

# name: (x86_64, aarch64); None where the architecture has no such call
_CALLS = {
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194),
    "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180), "mount": (165, 40),
    "umount2": (166, 39), "unshare": (272, 97), "setns": (308, 268), "pivot_root": (155, 41),
    "chroot": (161, 51), "bpf": (321, 280), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "userfaultfd": (323, 282), "perf_event_open": (298, 241),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "open_by_handle_at": (304, 265), "init_module": (175, 105), "finit_module": (313, 273),
    "kexec_load": (246, 104), "reboot": (169, 142), "swapon": (167, 224),
    "sethostname": (170, 161), "settimeofday": (164, 170), "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432),
    "mount_setattr": (442, 442), "personality": (135, 92), "fanotify_init": (300, 262),
    "setrlimit": (160, 164),
}  # fmt: skip
_WRITES = {
    "unlink": (87, None), "unlinkat": (263, 35), "rename": (82, None), "renameat": (264, 38),
    "renameat2": (316, 276), "rmdir": (84, None), "mkdir": (83, None), "mkdirat": (258, 34),
    "link": (86, None), "linkat": (265, 37), "symlink": (88, None), "symlinkat": (266, 36),
    "mknod": (133, None), "mknodat": (259, 33), "chmod": (90, None), "fchmod": (91, 52),
    "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None), "fchown": (93, 55),
    "lchown": (94, None), "fchownat": (260, 54), "truncate": (76, 45), "setxattr": (188, 5),
    "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "fremovexattr": (199, 16), "utime": (132, None),
    "utimes": (235, None), "utimensat": (280, 88), "futimesat": (261, None), "creat": (85, None),
}  # fmt: skip
_PROCESSES = {
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281),
}  # fmt: skip
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "clone": (56, 220), "clone3": (435, 435), "open": (2, None), "openat": (257, 56),
    "openat2": (437, 437), "kill": (62, 129), "tgkill": (234, 131), "tkill": (200, 130),
    "prctl": (157, 167), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "capset": (126, 91), "landlock_create_ruleset": (444, 444), "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446), "pivot_root": (155, 41),
}  # fmt: skip
_ARCHES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_LOAD, _JEQ, _JGE, _JSET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NEW_NAMESPACES = 0x7E020000 | 0x80
_FOR_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def _column() -> int:
    return _ARCHES[platform.machine()][0]


def _number(name: str) -> int | None:
    return _NUMBERS[name][_column()]


class Filter:
    """A seccomp filter that allows what no rule of it refuses."""

    def __init__(self) -> None:
        self._code = [
            (_LOAD, 0, 0, 4),
            (_JEQ, 1, 0, _ARCHES[platform.machine()][1]),
            (_RETURN, 0, 0, _KILL),
            (_LOAD, 0, 0, 0),
            (_JGE, 0, 1, 0x40000000),  # x86_64's second table of calls
            (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
        ]

    def refuse(
        self, calls: Mapping[str, tuple[int | None, int | None]], error: int = errno.EPERM
    ) -> None:
        """Let these calls fail with `error`."""
        for row in calls.values():
            number = row[_column()]
            if number is not None:
                self._code += [(_JEQ, 0, 1, number), (_RETURN, 0, 0, _ERRNO | error)]

    def refuse_if(self, name: str, argument: int, test: tuple[int, int], error: int) -> None:
        """Let a call fail where its argument passes a test.

        Args:
            name: of the call.
            argument: its index; the lower 32 bits count.
            test: ``(_JSET, mask)``: any bit of the mask is set; ``(_JEQ, value)``: it is equal.
            error: with which it fails.
        """
        self._on_argument(name, argument, test, (_ERRNO | error, _ALLOW))

    def refuse_unless(self, name: str, argument: int, test: tuple[int, int], error: int) -> None:
        """Let a call fail where its argument fails a test; the rest is as in `refuse_if`."""
        self._on_argument(name, argument, test, (_ALLOW, _ERRNO | error))

    def _on_argument(
        self, name: str, argument: int, test: tuple[int, int], ends: tuple[int, int]
    ) -> None:
        number = _number(name)
        if number is not None:
            self._code += [
                (_JEQ, 0, 4, number),
                (_LOAD, 0, 0, 16 + 8 * argument),
                (test[0], 0, 1, test[1]),
                (_RETURN, 0, 0, ends[0]),
                (_RETURN, 0, 0, ends[1]),
            ]

    def install(self) -> None:
        """Confine this process and its children to it, for good."""
        code = [*self._code, (_RETURN, 0, 0, _ALLOW)]
        packed = b"".join(struct.pack("HBBI", *each) for each in code)
        buffer = ctypes.create_string_buffer(packed, len(packed))
        program = struct.pack("HxxxxxxP", len(code), ctypes.addressof(buffer))
        _check(_LIBC.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
        _check(_LIBC.prctl(_SET_SECCOMP, 2, ctypes.c_char_p(program), 0, 0), "seccomp")


def confine(*, read_only: bool) -> None:
    """Refuse network, tracing and mounting from now on, and with `read_only` all writing."""
    rules = Filter()
    rules.refuse(_CALLS)
    rules.refuse({"clone3": _NUMBERS["clone3"]}, errno.ENOSYS)  # its flags cannot be seen
    rules.refuse_if("clone", 0, (_JSET, _NEW_NAMESPACES), errno.EPERM)
    if read_only:
        rules.refuse(_WRITES)
        rules.refuse({"openat2": _NUMBERS["openat2"]}, errno.ENOSYS)
        rules.refuse_if("open", 1, (_JSET, _FOR_WRITING), errno.EROFS)
        rules.refuse_if("openat", 2, (_JSET, _FOR_WRITING), errno.EROFS)
    rules.install()


def confine_program() -> None:
    """Refuse new processes, and signals to others, from now on; threads are allowed."""
    rules = Filter()
    rules.refuse(_PROCESSES)
    rules.refuse_unless("clone", 0, (_JSET, 0x10000), errno.EPERM)  # CLONE_THREAD
    own = os.getpid()
    rules.refuse_unless("kill", 0, (_JEQ, own), errno.EPERM)
    rules.refuse_unless("tgkill", 0, (_JEQ, own), errno.EPERM)
    refused = ("tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
    rules.refuse({name: _NUMBERS[name] for name in refused})
    rules.refuse_if("prctl", 0, (_JEQ, _SET_PDEATHSIG), errno.EPERM)
    rules.install()


# ---- file system ---------------------------------------------------------------------------------


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    result = _LIBC.mount(
        source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode()
    )
    _check(result, f"mount {target}")


def _visible() -> list[str]:
    """What a program may read: the system's libraries and this interpreter with its packages."""
    found = [*_SYSTEM, sys.base_prefix, sys.prefix, sys.exec_prefix, sys.base_exec_prefix]
    found += [os.path.realpath(each) for each in found if os.path.lexists(each)]
    found.append(os.path.dirname(os.path.realpath(sys.executable)))
    existing = sorted({each for each in found if each != "/" and os.path.lexists(each)})
    return [
        path
        for path in existing
        if not any(path.startswith(other + "/") for other in existing) or os.path.islink(path)
    ]


def _make_root(*, proc: bool) -> None:
    """Move this process into a root in memory that shows what is visible, read-only.

    Args:
        proc: whether ``/proc`` is there, too; without it, none but root may mount another one.
    """
    visible = _visible()
    _mount("none", "/", "", _REC | _PRIVATE)
    root = next(
        path
        for path in _MOUNT_POINTS
        if os.path.isdir(path) and not any(v.startswith(path + "/") or v == path for v in visible)
    )
    _mount("tmpfs", root, "tmpfs", _NOSUID | _NODEV, "size=4m,mode=755")
    for path in [*visible, *_DEVICES]:
        target = root + path
        os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
        if os.path.islink(path):
            os.symlink(os.readlink(path), target)
            continue
        if os.path.isdir(path):
            os.makedirs(target, mode=0o755, exist_ok=True)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
        _mount(path, target, "", _BIND | _REC)
        if path not in _DEVICES:
            locked = os.statvfs(target).f_flag & (_NOSUID | _NODEV | _NOEXEC)
            _mount("none", target, "", _REMOUNT | _BIND | _RDONLY | _NOSUID | locked)
    for folder in ("/tmp", "/proc"):  # noqa: S108 - in the private root
        os.makedirs(root + folder, mode=0o755, exist_ok=True)
    if proc:
        _mount("/proc", root + "/proc", "", _BIND | _REC)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"{root}/dev/{name}")
    os.chdir(root)
    _check(_LIBC.syscall(_number("pivot_root"), b".", b"."), "pivot_root")
    _check(_LIBC.umount2(b".", _DETACH), "umount")
    os.chdir("/")
    _mount("none", "/", "", _REMOUNT | _RDONLY | _NOSUID | _NODEV)


def _landlock(*, proc: bool = False) -> None:
    """Let this process read what is visible, with `proc` also ``/proc``, and nothing else."""
    everything = (1 << 13) - 1
    attributes = struct.pack("Q", everything)
    rules = _LIBC.syscall(_number("landlock_create_ruleset"), attributes, len(attributes), 0)
    _check(rules, "landlock")
    for path in [*_visible(), *_DEVICES, *(["/proc"] if proc else [])]:
        is_folder = os.path.isdir(path)
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        allowed = 0b1101 if is_folder else 0b0101  # execute, read file, read folder
        if path in _DEVICES:
            allowed = 0b0110
        rule = struct.pack("=Qi", allowed, handle)
        _check(_LIBC.syscall(_number("landlock_add_rule"), rules, 1, rule, 0), "landlock")
        os.close(handle)
    _check(_LIBC.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _check(_LIBC.syscall(_number("landlock_restrict_self"), rules, 0), "landlock")
    os.close(rules)


def _drop_capabilities() -> None:
    header = struct.pack("Ii", 0x20080522, 0)
    _check(_LIBC.syscall(_number("capset"), header, bytes(24)), "capset")


def _become(uid: int) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


# ---- the server ----------------------------------------------------------------------------------


class Confinement:
    """What this machine allows; found out once, by doing it.

    Attributes:
        namespaces: this process is in a private root, and each program in namespaces of its own.
        is_root: programs get a user id of their own.
        missing: what there is not, in words.
    """

    def __init__(self, wanted: str) -> None:
        self.namespaces = False
        self.is_root = os.geteuid() == 0
        self.has_landlock = False
        self.missing: list[str] = []
        if platform.machine() not in _ARCHES:
            raise OSError(f"there is no seccomp filter for {platform.machine()}")
        _in_a_child(lambda: confine(read_only=True), "seccomp")
        if wanted == "namespaces":
            self._try_namespaces()
        else:
            self.missing.append("namespaces (not wanted)")
        if not self.namespaces:
            self._without_namespaces()

    def _try_namespaces(self) -> None:
        try:
            _in_a_child(self._enter, "namespaces")
        except OSError as error:
            self.missing.append(f"namespaces ({error})")
            return
        self._enter()
        self.namespaces = True

    def _enter(self) -> None:
        uid, gid = os.geteuid(), os.getegid()
        private = _NEWNS | _NEWNET | _NEWIPC | _NEWUTS
        if not self.is_root or _LIBC.unshare(private) < 0:
            self.is_root = False
            _check(_LIBC.unshare(private | _NEWUSER), "unshare")
            for name, text in (
                ("setgroups", "deny"),
                ("uid_map", f"{uid} {uid} 1"),
                ("gid_map", f"{gid} {gid} 1"),
            ):
                with open(f"/proc/self/{name}", "w") as file:
                    file.write(text)
        _make_root(proc=not self.is_root)
        _in_a_child(lambda: _new_processes(self), "namespaces")

    def _without_namespaces(self) -> None:
        if self.is_root:
            try:
                _in_a_child(_drop_root, "a user of its own")
            except OSError as error:
                self.is_root = False
                self.missing.append(f"a user of its own ({error})")
        try:
            _in_a_child(_landlock, "Landlock")
            self.has_landlock = True
        except OSError as error:
            self.missing.append(f"Landlock ({error}), so programs can read what this user can")


def _new_processes(confinement: Confinement) -> None:
    _check(_LIBC.unshare(_NEWPID | _NEWNS), "unshare")
    _in_a_child(lambda: _own_folder(confinement, 1, 1 << 20), "namespaces")


def _drop_root() -> None:
    _become(_UIDS[0])
    with open(os.__file__, "rb"):
        os.listdir(sys.prefix)


def _in_a_child(work: Callable[[], None], what: str) -> None:
    """Do `work` in a forked process; raises an OSError where it fails there."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        message = b""
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - told to the parent
            message = str(error).encode()[:500] or b"failed"
        os.write(writer, message)
        os._exit(bool(message))
    os.close(writer)
    said = os.read(reader, 500)
    os.close(reader)
    _, status = os.waitpid(child, 0)
    if status:
        raise OSError(said.decode() or f"{what}: status {status}")


def _own_folder(confinement: Confinement, slot: int, folder_bytes: int) -> None:
    """A private ``/tmp`` and ``/proc``; then without any privilege."""
    options = f"size={folder_bytes},mode=1777,nr_inodes=4096"
    _mount("tmpfs", "/tmp", "tmpfs", _NOSUID | _NODEV, options)  # noqa: S108 - private
    try:
        _mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    except OSError:  # masked in a container; programs hardly need it
        _mount("tmpfs", "/proc", "tmpfs", _RDONLY | _NOSUID, "size=4k,mode=555")
    os.chdir("/tmp")  # noqa: S108
    if confinement.is_root:
        _become(_UIDS[slot % len(_UIDS)])
    else:
        _drop_capabilities()


class Job:
    """One program to run.

    Args:
        settings: ``id``, ``slot``, ``harness`` (whether it is ours, which forks the program),
            ``cpu_s``, ``wall_s``, ``memory``, ``file``, ``folder`` (bytes).
        files: source, standard input, output and error.
    """

    def __init__(self, settings: dict[str, int | float | str], files: list[int]) -> None:
        self.settings = settings
        self.files = files

    def number(self, name: str) -> int:
        """A setting as a whole number."""
        return int(self.settings[name])


def _limit(job: Job, confinement: Confinement) -> None:
    cpu_s = -int(-float(job.settings["cpu_s"]) // 1)
    memory, file = job.number("memory"), job.number("file")
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file, file))
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_STACK)
    stack = 120 << 20
    if most == resource.RLIM_INFINITY or most >= stack:
        resource.setrlimit(resource.RLIMIT_STACK, (stack, most))
    if _has_own_count(confinement):
        resource.setrlimit(resource.RLIMIT_NPROC, (_MOST_THREADS, _MOST_THREADS))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def _has_own_count(confinement: Confinement) -> bool:
    """Whether the limit on processes is for programs alone, not for all that this user runs."""
    if os.geteuid() in _UIDS:
        return True
    try:
        major, minor = (int(each) for each in platform.release().split(".")[:2])
    except ValueError:
        return False
    return confinement.namespaces and (major, minor) >= (5, 14)


class _Ready(NamedTuple):
    """The source of a program whose process is confined."""

    source: str
    is_harness: bool
    has_landlock: bool


def _prepare(job: Job, confinement: Confinement) -> _Ready:
    """Confine this process, the program's own; returns its source."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_DFL)
    source_file, *standard = job.files
    size = os.fstat(source_file).st_size
    source = os.pread(source_file, size, 0).decode()
    if confinement.namespaces:
        _own_folder(confinement, job.number("slot"), job.number("folder"))
    else:
        os.chdir("/")
        if confinement.is_root:
            _become(_UIDS[job.number("slot") % len(_UIDS)])
        if confinement.has_landlock:
            _landlock(proc=bool(job.settings["harness"]))
        _drop_capabilities()
    _check(_LIBC.prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
    for number, file in enumerate(standard):
        os.dup2(file, number)
    _limit(job, confinement)
    confine(read_only=not confinement.namespaces)
    is_harness = bool(job.settings["harness"])
    if not is_harness:
        confine_program()
    return _Ready(source, is_harness, confinement.has_landlock)


def _child(job: Job, confinement: Confinement, status: int) -> _Ready:
    """Runs in the program's process: its source; does not return where it cannot be confined."""
    try:
        ready = _prepare(job, confinement)
    except BaseException as error:  # noqa: BLE001 - told to the parent
        os.write(status, f"{type(error).__name__}: {error}".encode()[:500] or b"failed")
        os._exit(1)
    os.closerange(3, 1 << 16)  # closes the status pipe too, which says that all is set up
    return ready


def _watch(job: Job, child: int, status: int) -> dict[str, object]:
    """Wait for the program to end, or end it at its deadline; what became of it."""
    began = time.monotonic()
    problem = os.read(status, 500)
    os.close(status)
    deadline = ProgramTime(float(job.settings["wall_s"]), child)
    while True:
        done, raw, usage = os.wait4(child, os.WNOHANG)
        if done:
            break
        caught = signal.sigtimedwait((signal.SIGCHLD, signal.SIGTERM), deadline.left_s())
        if deadline.is_over() or (caught is not None and caught.si_signo == signal.SIGTERM):
            _kill(child)
            done, raw, usage = os.wait4(child, 0)
            break
    _kill_orphans()
    return {
        "id": job.settings["id"],
        "problem": problem.decode(errors="replace"),
        "late": deadline.is_late,
        "starved": deadline.is_starved,
        "code": os.waitstatus_to_exitcode(raw),
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "wall_s": time.monotonic() - began,
        "rss": usage.ru_maxrss * 1024,
    }


class ProgramTime:
    """The end of a program's time; time in which it was ready and had no core does not count.

    Args:
        wall_s: its time.
        pid: of its process.

    Attributes:
        is_late: whether it is over.
        is_starved: whether it is over because the machine has hardly run the program.
    """

    def __init__(self, wall_s: float, pid: int) -> None:
        self._wall_s = wall_s
        self._pid = pid
        self._began_s = time.monotonic()
        self._ends_s = self._began_s + wall_s
        self.is_late = False
        self.is_starved = False

    def left_s(self) -> float:
        """Seconds until `is_over` has to be asked."""
        return max(0.0, self._ends_s - time.monotonic())

    def is_over(self) -> bool:
        """Whether it is over; else there may be more time."""
        now_s = time.monotonic()
        if now_s < self._ends_s:
            return False
        self.is_starved = now_s >= self._began_s + _MOST_STARVED * self._wall_s
        self._ends_s = self._began_s + self._wall_s + _waited_s(self._pid)
        self.is_late = self.is_starved or self._ends_s - now_s < _LEAST_S
        return self.is_late


def _waited_s(pid: int) -> float:
    """Seconds that a process was ready to run, and the machine had no core for it."""
    try:
        return int(_read_proc(f"{pid}/schedstat").split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _read_proc(name: str) -> str:
    """A file of ``/proc``, which the private root has not."""
    file = os.open(name, os.O_RDONLY, dir_fd=_PROC[0])
    try:
        return os.read(file, 1 << 16).decode()
    finally:
        os.close(file)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _kill_orphans() -> None:
    """End what a program has left behind; with process namespaces there is nothing."""
    for _ in range(1000):
        try:
            done, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if done:
            continue
        own = os.getpid()
        try:
            children = _read_proc(f"{own}/task/{own}/children").split()
        except OSError:
            children = []
        for child in children:
            _kill(int(child))
        time.sleep(0.001)


def _supervise(job: Job, confinement: Confinement, engine: socket.socket) -> _Ready:
    """Runs in the watching process of one job; returns in the program's own, forked from it."""
    reader, writer = os.pipe()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM})
    _LIBC.prctl(_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    _LIBC.prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    if confinement.namespaces and _LIBC.unshare(_NEWPID | _NEWNS) < 0:
        reason = f"unshare: {os.strerror(ctypes.get_errno())}"
        engine.send(json.dumps({"id": job.settings["id"], "problem": reason}).encode())
        os._exit(0)
    child = os.fork()
    if child == 0:
        os.close(reader)
        engine.close()
        return _child(job, confinement, writer)
    os.close(writer)
    for file in job.files:
        os.close(file)
    engine.send(json.dumps(_watch(job, child, reader)).encode())
    os._exit(0)


class Server:
    """Takes jobs from the engine and forks a watching process for each.

    Args:
        engine: the socket to the engine.
        confinement: of the programs.
    """

    def __init__(self, engine: socket.socket, confinement: Confinement) -> None:
        self._engine = engine
        self._confinement = confinement
        self._running: dict[int, str] = {}

    def serve(self) -> _Ready | None:
        """Returns None when the engine has closed its end; a program's source in its process."""
        poll = select.poll()
        poll.register(self._engine, select.POLLIN)
        while True:
            ready = poll.poll(100 if self._running else 60_000)
            self._reap()
            if not ready:
                continue
            try:
                message, files, _, _ = socket.recv_fds(self._engine, 1 << 16, 8)
            except ConnectionResetError:
                message, files = b"", []
            if not message:
                self._end_all()
                return None
            started = self._take(json.loads(message), files)
            if started is not None:
                return started

    def _take(self, message: dict[str, int | float | str], files: list[int]) -> _Ready | None:
        if "cancel" in message:
            for pid, name in self._running.items():
                if name == message["cancel"]:
                    os.kill(pid, signal.SIGTERM)
            return None
        job = Job(message, files)
        try:
            pid = os.fork()
        except OSError as error:
            self._tell(job.settings["id"], f"fork: {error}")
            pid = -1
        if pid == 0:
            return _supervise(job, self._confinement, self._engine)
        for file in files:
            os.close(file)
        if pid > 0:
            self._running[pid] = str(job.settings["id"])
        return None

    def _reap(self) -> None:
        while self._running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            name = self._running.pop(pid, None)
            if status and name is not None:
                self._tell(name, f"the watching process ended with status {status}")

    def _tell(self, name: object, problem: str) -> None:
        self._engine.send(json.dumps({"id": name, "problem": problem}).encode())

    def _end_all(self) -> None:
        for pid in self._running:
            os.kill(pid, signal.SIGTERM)
        for pid in list(self._running):
            os.waitpid(pid, 0)


def _confine_from_harness(ready: _Ready) -> None:
    """Confine the program that a harness has forked; the harness may read ``/proc``."""
    if ready.has_landlock:
        _landlock()
    confine_program()


def _run(ready: _Ready) -> int:
    """Run a program as ``__main__``; its exit code."""
    import traceback

    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.argv = ["solution.py"]
    space = module.__dict__
    if ready.is_harness:
        space["confine_program"] = lambda: _confine_from_harness(ready)
        space["builtin_names"] = _BUILTIN_NAMES
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
    vars(sys).update(__stdin__=sys.stdin, __stdout__=sys.stdout, __stderr__=sys.stderr)
    try:
        code = _HARNESS[0] if ready.is_harness else compile(ready.source, "solution.py", "exec")
        exec(code, space)  # noqa: S102 - what a sandbox is for
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return int(end.code or 0) & 0xFF
        sys.stderr.write(f"{end.code}\n")
        return 1
    except BaseException:  # noqa: BLE001 - as the interpreter would
        traceback.print_exc()
        return 1
    return 0


def _finish(code: int) -> None:
    """End the program's process as the interpreter would, without taking its memory apart."""
    import atexit
    import threading

    try:
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - as the interpreter
        atexit._run_exitfuncs()  # noqa: SLF001
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001
        code = code or 120
    os._exit(code)


def _main() -> None:
    """Serve the socket whose number is the first argument, until the engine closes it."""
    engine = socket.socket(fileno=int(sys.argv[1]))
    options = json.loads(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the engine ends it, not the terminal
    exec(options["prelude"], {"__name__": "__main__"})  # noqa: S102 - from the engine
    _HARNESS.append(compile(options["harness"], "harness.py", "exec"))
    _PROC.append(os.open("/proc", os.O_RDONLY | os.O_DIRECTORY))
    sys.setrecursionlimit(100_000)
    try:
        confinement = Confinement(options["isolation"])
    except OSError as error:
        engine.send(json.dumps({"refused": str(error)}).encode())
        return
    first = {"namespaces": confinement.namespaces, "missing": confinement.missing}
    engine.send(json.dumps(first).encode())
    gc.collect()
    gc.freeze()
    started = Server(engine, confinement).serve()
    if started is not None:
        del engine
        _finish(_run(started))


if __name__ == "__main__":
    _main()
