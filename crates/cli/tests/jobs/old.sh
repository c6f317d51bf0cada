#!/bin/sh
# What is in the directory before the jobs: $1 is the directory, $2 an archive of a real source tree.
set -eu
umask 022
cd "$1"
mkdir old
tar -C old -xf "$2"
mkdir old/gone
for at in 1 2 3 4 5 6 7 8; do echo "old $at" > old/gone/$at; echo "old $at" > old/edit$at; done
ln old/edit1 old/link1
find old -newermt 2020-01-01 -exec touch -h -d '2020-01-02 03:04:05.678901234' {} +
