"""What `vm_stat` printed on Macs, as their owners published it, and a kernel that answers with these numbers."""

import ctypes
import re
from typing import Any

# wazuh/wazuh, issue 22113: 32 GB, an Intel processor, at rest.
INTEL = """Mach Virtual Memory Statistics: (page size of 4096 bytes)
Pages free:                             6127229.
Pages active:                            485320.
Pages inactive:                          628646.
Pages speculative:                       430715.
Pages throttled:                              0.
Pages wired down:                        715958.
Pages purgeable:                          11820.
"Translation faults":                  11477162.
File-backed pages:                      1080348.
Anonymous pages:                         464333.
Pages stored in compressor:                   0.
Pages occupied by compressor:                 0.
"""
# 16 GB; `memory_pressure` called 67 % of it free.
AT_WORK = """Mach Virtual Memory Statistics: (page size of 16384 bytes)
Pages free:                                    79141.
Pages active:                                 306165.
Pages inactive:                               292169.
Pages speculative:                             13860.
Pages throttled:                                   0.
Pages wired down:                             119215.
Pages purgeable:                                 175.
"Translation faults":                     5354572810.
File-backed pages:                            275590.
Anonymous pages:                              336604.
Pages stored in compressor:                   373938.
Pages occupied by compressor:                 204575.
"""
# A Mac mini with 32 GB, of which `top` called 6546M wired and 1805M the compressor's.
MINI = """Mach Virtual Memory Statistics: (page size of 16384 bytes)
Pages free:                              145583.
Pages active:                            687158.
Pages inactive:                          635566.
Pages speculative:                        60016.
Pages throttled:                              0.
Pages wired down:                        418679.
Pages purgeable:                          23187.
"Translation faults":                6709301927.
File-backed pages:                       422194.
Anonymous pages:                         960546.
Pages stored in compressor:              305219.
Pages occupied by compressor:            115508.
"""
# An M5 Pro with 48 GB and many cached files, after weeks of work with models; its kernel tags memory.
CACHED_FILES = """Mach Virtual Memory Statistics: (page size of 16384 bytes)
Pages free:                                     4220.
Pages active:                                1035543.
Pages inactive:                               931760.
Pages speculative:                            102605.
Pages throttled:                                   0.
Pages wired down:                             495824.
Pages purgeable:                                 159.
"Translation faults":                    13443245655.
File-backed pages:                           1363590.
Anonymous pages:                              706318.
Pages stored in compressor:                  1671050.
Pages occupied by compressor:                 515434.
Pages tagged:                                 162257.
Pages tag-storage:                             98304.
"""
# 32 GB, nearly all of it in use.
FULL = """Mach Virtual Memory Statistics: (page size of 16384 bytes)
Pages free:                                     3763.
Pages active:                                 386314.
Pages inactive:                               383047.
Pages speculative:                              1870.
Pages throttled:                                   0.
Pages wired down:                             266484.
Pages purgeable:                                 226.
"Translation faults":                     5174295619.
File-backed pages:                            261298.
Anonymous pages:                              509933.
Pages stored in compressor:                  4527274.
Pages occupied by compressor:                1015753.
"""


class Statistics(ctypes.Structure):
    """`vm_statistics64`, field by field as in xnu's osfmk/mach/vm_statistics.h."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("free", "active", "inactive", "wire")),
        *((name, ctypes.c_uint64) for name in ("zero_fill", "reactivations", "pageins", "pageouts", "faults")),
        *((name, ctypes.c_uint64) for name in ("cow_faults", "lookups", "hits", "purges")),
        *((name, ctypes.c_uint32) for name in ("purgeable", "speculative")),
        *((name, ctypes.c_uint64) for name in ("decompressions", "compressions", "swapins", "swapouts")),
        *((name, ctypes.c_uint32) for name in ("compressor", "throttled", "external", "internal")),
        ("uncompressed", ctypes.c_uint64),
    )


# The lines of `vm_stat`; the field "free" has speculative pages too.
_LINES = {
    "Pages active": "active",
    "Pages inactive": "inactive",
    "Pages wired down": "wire",
    '"Translation faults"': "faults",
    "Pages purgeable": "purgeable",
    "Pages speculative": "speculative",
    "Pages throttled": "throttled",
    "File-backed pages": "external",
    "Anonymous pages": "internal",
    "Pages stored in compressor": "uncompressed",
    "Pages occupied by compressor": "compressor",
}


class Kernel:
    """Answers `host_statistics64` as the kernel of a Mac does; stands for its C library.

    Attributes:
        page_bytes: Size of a page.
        ports: How often a port was asked for.
        failure: What the call returns.
    """

    def __init__(self, text: str) -> None:
        counts = {name: int(count) for name, count in re.findall(r"^([^:\n]+):\s+(\d+)\.$", text, re.MULTILINE)}
        self.page_bytes = int(re.findall(r"page size of (\d+)", text)[0])
        self.ports = 0
        self.failure = 0
        self._statistics = Statistics(
            free=counts["Pages free"] + counts["Pages speculative"],
            **{field: counts[line] for line, field in _LINES.items()},
        )

    def mach_host_self(self) -> int:
        self.ports += 1
        return 0x1307

    def host_statistics64(self, port: int, flavour: int, answer: Any, count: Any) -> int:
        """Fill the answer, whose size in 32-bit units is `count`."""
        assert (port, flavour) == (0x1307, 4)
        assert count._obj.value * 4 == ctypes.sizeof(Statistics) == len(answer)
        ctypes.memmove(answer, ctypes.byref(self._statistics), len(answer))
        return self.failure
