"""Lines of events, for kernels. Words in _log_lines.pyi."""

cpdef event(logger, str message, dict values)
