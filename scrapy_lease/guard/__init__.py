"""Leases under a scheduler that the user chose: taken in the downloader path; that scheduler keeps the requests."""
