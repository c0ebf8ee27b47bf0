"""The chat page and the login of the demonstration."""

from __future__ import annotations

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import path

from demo import views

urlpatterns = [
    path("", views.chat, name="chat"),
    path("c/<uuid:session_id>/", views.chat, name="conversation"),
    path("login/", LoginView.as_view(redirect_authenticated_user=True), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
]
