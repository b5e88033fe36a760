"""The views, one file each; `app.py` names them."""
