# cython: auto_pickle=False
"""The caller of an operation, of which each connect makes three. Words in _identity.pyi."""

from sys import intern

cimport cython

cdef frozenset NO_TAGS = frozenset()
cdef frozenset SEEING = frozenset({"administrator", "monitoring"})      # tags of users who see everything


@cython.freelist(16)
cdef class Identity:
    def __init__(self, str username not None, frozenset tags not None=NO_TAGS, str client_id not None="", grants=None,
                 bint guarded=True):
        self.username = username
        self.tags = tags
        self.client_id = client_id
        self.grants = grants
        self.guarded = guarded

    @property
    def sees_all(self):
        return not self.tags.isdisjoint(SEEING)

    def of_client(self, str client_id not None):
        return Identity(intern(self.username), self.tags, client_id, self.grants, self.guarded)

    def with_guard(self, bint guarded):
        return Identity(self.username, self.tags, self.client_id, self.grants, guarded)

    def __eq__(self, other):
        cdef Identity one
        if not isinstance(other, Identity):
            return NotImplemented
        one = <Identity>other
        return (self.username == one.username and self.tags == one.tags and self.client_id == one.client_id
                and self.grants == one.grants)

    def __hash__(self):
        return hash((self.username, self.tags, self.client_id, self.grants))

    def __repr__(self):
        return (f"Identity(username={self.username!r}, tags={self.tags!r}, client_id={self.client_id!r}, "
                f"grants={self.grants!r}, guarded={self.guarded!r})")
