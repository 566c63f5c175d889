"""What operators do with a data folder: look into it, count, mend, carry it elsewhere. `penstock log`."""
