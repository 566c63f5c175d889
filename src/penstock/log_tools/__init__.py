"""Tools for a data folder, behind `penstock log`: inspect, count, repair, copy, move."""
