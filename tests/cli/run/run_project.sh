# project has no sample, its weight alone is 4 MiB
python3 "$SRC/tests/cli/make_project.py" project.safetensors
"$MEGAMLA" run project.safetensors --repeat 1 --compare reference -o out.safetensors
