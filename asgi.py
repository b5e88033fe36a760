"""What `tools/serve.py` serves: the dashboard, with the address for uploads closed to who isn't an editor.

Streamlit takes files from every open session, signed in or not, and keeps them in memory.
"""

import streamlit as st
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from pages.shared import access

_UPLOADS = "/_stcore/upload_file/"


class EditorsUpload:
    """Refuses a file before it is read unless the session that it is for is an editor's."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        _, found, rest = str(scope.get("path", "")).partition(_UPLOADS)
        if found and scope.get("method") == "PUT" and not access.may_upload(rest.partition("/")[0]):
            await PlainTextResponse("Only editors upload files.", 403)(scope, receive, send)
            return
        await self._app(scope, receive, send)


app = st.App("app.py", middleware=[Middleware(EditorsUpload)])
