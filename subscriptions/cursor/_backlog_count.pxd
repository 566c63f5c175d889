# How many messages wait. The words are in _counting.pyx.

from libc.stdint cimport uint64_t

from penstock.subscriptions.cursor._memberships cimport Members
from penstock.subscriptions.cursor._ranges cimport Runs

cdef uint64_t count_untaken(object log, Members* members, Runs* runs) except? 0xFFFFFFFFFFFFFFFF
