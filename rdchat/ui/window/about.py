"""The About box: what this is, its versions and its licence."""

import platform
from importlib import metadata

from PySide6.QtCore import Qt, qVersion
from PySide6.QtWidgets import QMessageBox, QWidget

import rdchat
from rdchat.ui.look.icons import app_pixmap

_WORDS = (
    "<p>Chat with language models that run on your own machine.</p>"
    "<p><small>Python {python}, Qt {qt}, MLX {mlx}, mlx-lm {mlx_lm}</small></p>"
    "<p><small>Licensed under the Apache License 2.0. The default model is SmolLM2 135M Instruct by Hugging Face, "
    "Apache License 2.0. Qt is used under the LGPL 3.</small></p>"
)


def about_box(parent: QWidget) -> QMessageBox:
    """Return the box; it deletes itself when closed. Versions are read from metadata: MLX is not imported for it."""
    box = QMessageBox(parent)
    box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    box.setWindowTitle("About rdchat")
    box.setIconPixmap(app_pixmap(72, 2))
    box.setText(f"<b>rdchat {rdchat.__version__}</b>")
    box.setInformativeText(
        _WORDS.format(
            python=platform.python_version(),
            qt=qVersion(),
            mlx=metadata.version("mlx"),
            mlx_lm=metadata.version("mlx-lm"),
        )
    )
    return box
