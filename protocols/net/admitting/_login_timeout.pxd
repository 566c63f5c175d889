"""The login timeout. Words in _login_timeout.pyi."""


cdef class LoginTimes:
    cdef object loop
    cdef double judged_s
    cdef dict waiting               # by connection: what did not happen yet, and when it is due
    cdef object timer
    cdef double at                  # when that fires; infinite: there is none
    cpdef begin(self, stranger, str what, double within_s)
    cpdef end(self, stranger)
    cdef int arm(self, double at, double due) except -1
