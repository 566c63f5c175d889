"""The connections in a vhost. Words in _connections.pyi."""


cdef class Index:
    cdef object user_limits
    cdef readonly dict _members     # with the user and the vhost it entered as
    cdef readonly dict _of_user, _of_vhost
    cdef readonly dict _ends        # timers: when logins by token end
    cpdef enter(self, member)
    cpdef leave(self, member)
