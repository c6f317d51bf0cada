#!/bin/sh
# The jobs: $1 is the directory in which they work, $2 an archive of a real source tree, $3 the folder of these scripts.
set -eu
umask 022
export LC_ALL=C TZ=UTC HOME="$1" GIT_CONFIG_NOSYSTEM=1 PYTHONDONTWRITEBYTECODE=1
export GIT_AUTHOR_DATE='1600000000 +0000' GIT_COMMITTER_DATE='1600000000 +0000'
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
cd "$1"

# A source tree is unpacked, copied with everything, and linked.
mkdir source
tar -C source -xf "$2"
cp -a source copy
cp -al source/docs links
ln -s source/docs pointer
ln -sfn nowhere dangling
mkfifo pipe

# A build: objects, a library, a program that runs; and again after an edit.
mkdir build
for at in 1 2 3 4 5 6; do
    printf 'int f%s(int x) { return x * %s + 1; }\n' $at $at > build/f$at.c
done
{
    for at in 1 2 3 4 5 6; do printf '%s\n' "int f$at(int);"; done
    printf '%s\n' '#include <stdio.h>'
    printf '%s\n' 'int main(void) { printf("%d\n", f1(1) + f2(2) + f3(3) + f4(4) + f5(5) + f6(6)); return 0; }'
} > build/main.c
cat > build/Makefile <<'END'
objects = f1.o f2.o f3.o f4.o f5.o f6.o
program: main.o libf.a
	cc -o $@.new main.o libf.a && mv $@.new $@
libf.a: $(objects)
	rm -f $@ && ar rcD $@ $(objects)
%.o: %.c
	cc -O1 -c -o $@ $<
END
make -s -C build -j4
test "$(build/program)" = 97
echo 'int f6(int x) { return x; }' > build/f6.c
make -s -C build -j4
test "$(build/program)" = 66

# A virtual environment, and a program in it.
python3 -m venv --without-pip env
env/bin/python -c 'import json, sys; json.dump({"ok": sys.prefix != sys.base_prefix}, open("ok.json", "w"))'
grep -q true ok.json

# Version control.
git init -q -b main repository
git -C repository config pack.threads 1
git -C repository config gc.auto 0
cp -r source/docs repository/docs
git -C repository add .
git -C repository commit -q -m first
sed -i 's/the/THE/' repository/docs/*.md
rm repository/docs/glossary.md
git -C repository commit -q -a -m second
git -C repository gc -q
git clone -q repository clone
git -C repository worktree add -q ../worktree HEAD~1
test -z "$(git -C repository status --porcelain)$(git -C clone status --porcelain)$(git -C worktree status --porcelain)"
git -C clone fsck --strict --no-progress

# Checkpoints of many processes, databases, extended attributes.
python3 "$3/job.py" "$1"

# Old files are edited in every way, and a part of the tree goes.
sed -i 's/old/new/' old/edit1
echo more >> old/edit2
truncate -s 1 old/edit3
truncate -s 100000 old/edit4
printf X | dd of=old/edit5 bs=1 seek=2 conv=notrunc status=none
chmod 4711 old/edit6
chown 12:34 old/edit6 old/crates/types
touch -d '2001-02-03 04:05:06.789012345' old/edit7 old/crates/policy
mv old/edit8 old/moved
mv old/docs docs
mv old/crates/types/src old/crates/types/sources
rm -rf old/gone copy/crates/wire source/examples
cp --reflink=never docs/semantics.md old/crates/types/semantics.md
