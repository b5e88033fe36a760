#!/bin/sh
# The tests drive a real Chromium and a real PostgreSQL: say what is missing, or install it where that is ours to do.
# (MemOS and the PostgreSQL that it uses are in an environment of their own, which the Makefile makes.)
set -eu
missing=""
command -v "${CHROMIUM:-chromium}" >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 || \
    command -v google-chrome >/dev/null 2>&1 || [ -x "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome" ] || missing="chromium"
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null 2>&1 || missing="$missing postgresql"
[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing for the tests: $missing"
    apt-get update -qq
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing fonts-dejavu-core >/dev/null
    exit 0
fi
echo "The tests need:$missing" >&2
echo "  Debian, Ubuntu:  sudo apt-get install $missing" >&2
echo "  macOS:           brew install --cask chromium; brew install postgresql@17" >&2
exit 1
