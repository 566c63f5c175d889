"""Logins: one way for all front ends (`logins`), and where the keys of OAuth 2 tokens come from
(`key_source`).
"""
