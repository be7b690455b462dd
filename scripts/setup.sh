#!/bin/sh
# Installs what the tests need and the machine lacks: a redis-server, which the drivers' tests start
# for themselves on free ports. Installs nothing if it is there.
set -eu

if command -v redis-server >/dev/null 2>&1; then
    exit 0
fi

if ! command -v apt-get >/dev/null 2>&1; then
    echo "Please install redis-server 7 or later and put it on the PATH: the tests start it." >&2
    exit 1
fi

as_root=""
if [ "$(id -u)" -ne 0 ]; then
    as_root="sudo"
fi
echo "installing redis-server"
export DEBIAN_FRONTEND=noninteractive
# The service that the package would start is of no use here: every test starts its own server.
$as_root apt-get update -qq
$as_root env RUNLEVEL=1 apt-get install -y -qq --no-install-recommends redis-server >/dev/null
