"""The rules of the house: what every source of this repository must look like."""
