"""`streamlit run app.py`, with any of its flags, and with `pages/` taken for what it is: ours.

Streamlit takes a folder of that name for its older kind of app until `st.navigation` has run once, and so tells the
first visitor who follows a link to a page that there is no such page. It asks this flag (Streamlit 1.67, pinned).
"""

from __future__ import annotations

import sys
from pathlib import Path

from streamlit.runtime.pages_manager import PagesManager
from streamlit.web import cli


def main() -> None:
    """Serve the dashboard until it is stopped."""
    PagesManager.uses_pages_directory = False
    sys.argv = ["streamlit", "run", str(Path(__file__).resolve().parent.parent / "app.py"), *sys.argv[1:]]
    cli.main()


if __name__ == "__main__":
    main()
