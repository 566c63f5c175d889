"""Fields of log lines as text, for kernels. Words in _log_fields.pyi."""

cdef enum:
    MOMENT = 24                     # bytes of a time
    SMALL = 512                     # bytes of all fields of a line, as a rule

cdef Py_ssize_t write_moment(char* to, double seconds) noexcept
# `pairs` of values of which no one has to be looked at closer, into to[0:SMALL]; -1: of others, or too long.
cdef Py_ssize_t quickly(dict values, Py_ssize_t short, char* to) except -2
cpdef str pairs(dict values, Py_ssize_t short, other)
cpdef bint only(logger, handler) except -1
