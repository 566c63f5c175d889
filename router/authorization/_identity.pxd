"""The caller of an operation. Words in _identity.pyi."""


cdef class Identity:
    cdef readonly str username
    cdef readonly frozenset tags
    cdef readonly str client_id
    cdef readonly object grants
    cdef readonly bint guarded
