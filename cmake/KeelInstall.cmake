# filled in by the install part
