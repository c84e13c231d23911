"""Files that are written whole or not at all, and recognized by their content.

`atomic` and `part_file` write, `checksums` and `content` verify, `followed` reads a folder that grows. `container` is the
`.safetensors` format of rhocal itself, and `writers` write results block by block. How scores are read belongs in `formats`.
"""
